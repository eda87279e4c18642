"""The calls to Dask that a run makes, with what can be wrong with a cluster as NoCluster."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .cluster_terms import MEMORY, TOPIC, NoCluster, Report
from .pool import WorkerDied

if TYPE_CHECKING:
    from distributed import Client, Future, WorkerPlugin

# Seconds to connect, and to connect again to a scheduler that was lost.
_CONNECT: Final = 30

# Seconds for an answer of the scheduler: one that is frozen keeps its connections.
_ANSWER: Final = 5

# The topic of Dask's own events.
_OF_DASK: Final = "all"

_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Workers:
    """Those that can have tasks: their threads, and the most memory of one in bytes.

    `unlimited` counts workers that declare no memory; they get no task when others do.
    """

    threads: int
    largest: int
    unlimited: int

    @property
    def are_limited(self) -> bool:
        """Whether memory is a resource of them."""
        return self.largest < _UNLIMITED


class ClusterClient:
    """A connection to a scheduler; `name` is that of the run on the cluster.

    `address` is `tcp://...`, or the path of a scheduler file. Raises NoCluster.
    """

    def __init__(self, address: str) -> None:
        self._client = _connect(address)
        self.name = f"nemar-convert-{self._client.id}"
        self._count = itertools.count()
        self._has_keepers = False

    def listen(self, hear: Callable[[Any], None]) -> None:
        """Have `hear` told the events of tasks and of the cluster, each a dict."""
        for topic in (TOPIC, _OF_DASK):
            self._client.subscribe_topic(topic, lambda event: hear(event[1]))

    def keep(self, keeper: WorkerPlugin) -> None:
        """Put a keeper on every worker that there is or will be.

        Raises NoCluster when it finds one unfit that is there.
        """
        self._has_keepers = True
        try:
            self._client.register_plugin(keeper, name=self.name)
        except ModuleNotFoundError as error:
            raise NoCluster(
                f"a Dask worker has no Python package {error.name!r}; nemar-convert is expected "
                "on all of them"
            ) from error
        except Exception as error:
            raise NoCluster(str(error)) from error

    def dismiss(self) -> None:
        """Take the keepers away; they end what runs."""
        if not self._has_keepers:
            return
        self._has_keepers = False
        if self._client.status == "running":
            _in_time(lambda: self._client.unregister_worker_plugin(self.name))

    def workers(self) -> Workers | None:
        """The workers that there are now; None when the scheduler does not tell."""
        scheduler = self._client.scheduler
        if scheduler is None:
            return None
        try:
            answer = self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=_ANSWER)
        except Exception:
            return None
        infos = answer["workers"].values()
        memory = [info["resources"].get(MEMORY) for info in infos]
        limits = [limit for limit in memory if limit is not None]
        chosen = [info for info in infos if not limits or MEMORY in info["resources"]]
        return Workers(
            threads=sum(info["nthreads"] for info in chosen),
            largest=int(max(limits, default=_UNLIMITED)),
            unlimited=len(memory) - len(limits),
        )

    def submit(
        self, work: Callable[..., Report], arguments: Iterable[Any], number: int, memory: int
    ) -> Future[Report]:
        """Hand in a task; the lower its number the more urgent. `memory` 0 asks for none."""
        future: Future[Report] = self._client.submit(
            work,
            *arguments,
            key=f"{self.name}-{next(self._count)}",
            priority=-number,
            resources={MEMORY: memory} if memory else None,
            pure=False,
        )
        return future

    def report(self, future: Future[Report]) -> Report:
        """What a future that is done holds."""
        from distributed import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                why = "the Dask workers that had it were lost, one after the other"
            else:
                why = f"{type(error).__name__}: {error}"
            return Report("", WorkerDied(why))
        try:
            return future.result(timeout=_CONNECT)
        except Exception:
            return Report("", NoCluster("the Dask scheduler was lost"))

    def retire(self, worker: str) -> None:
        """Close a worker."""
        _in_time(lambda: self._client.retire_workers([worker]))

    def close(self, futures: Iterable[Future[Report]]) -> None:
        """Leave the cluster, with nothing of the run at work on it."""
        if self._client.status == "running":
            _in_time(lambda: self._client.cancel(list(futures), force=True))
            _in_time(lambda: self._client.unsubscribe_topic(_OF_DASK))
        self.dismiss()
        with suppress(Exception):
            self._client.close(timeout=5)


def _in_time(call: Callable[[], object]) -> None:
    """Make a call whose failure, or want of an answer, is no reason to wait."""

    def attempt() -> None:
        with suppress(Exception):
            call()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(_ANSWER)


def _connect(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise NoCluster(
            "--dask needs the package `distributed`: pip install 'nemar-convert[cluster]'"
        ) from error
    # What they say of a lost scheduler, the run says in one sentence.
    for name in ("distributed.client", "distributed.core", "distributed.batched"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if "://" not in address and not Path(address).is_file():
        raise NoCluster(
            f"--dask {address!r} is no file; a scheduler file or an address such as "
            "tcp://host:8786 was expected"
        )
    where = {"address": address} if "://" in address else {"scheduler_file": address}
    try:
        return Client(**where, timeout=_CONNECT, set_as_default=False)
    except Exception as error:
        raise NoCluster(f"no Dask scheduler answers at {address}") from error
