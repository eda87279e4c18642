"""What reads a recording reaches its files and its scratch, and nothing else of the machine."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pty
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from converter.contract.codes import PendingReason
from converter.dataset.content_source import ContentSource
from converter.dataset.discovery import discover
from converter.dataset.repository import Repository
from converter.dataset.snapshot import Snapshot
from converter.pipeline import Silent, convert_dataset
from converter.recording import convert
from converter.recording.attributes import StoreContext
from converter.recording.local import LocalRecording
from converter.storage.local_destination import LocalDestination
from converter.work import enclosure, landlock, libc
from converter.work import task as task_module
from converter.work.apart import DiedApart, run_apart
from converter.work.outcome import Converted, Deferred, Result
from converter.work.pool import Demand, WorkerDied, WorkerPool
from converter.work.task import CONVERSION, Task, run_task
from converter.work.worker import Turn

from ..fixture_outcomes import FIXTURE_DATASET

SECRET = "the secret of this machine"
enclosing = pytest.mark.skipif(not enclosure.is_possible(), reason="this kernel has no Landlock")


class FreeTurn:
    """A turn where nobody else waits, as for a task that has its machine to itself."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    @contextmanager
    def core(self) -> Iterator[int]:
        """Hold the core at once."""
        yield self._threads

    def hand_over(self, pid: int) -> None:
        """Nobody counts."""


def apart(function: Callable[[], Any]) -> Any:
    """What a function returns in a forked process, as JSON has it."""
    return json.loads(run_apart(lambda: json.dumps(function()).encode(), lambda _: None))


@pytest.fixture
def places(tmp_path: Path) -> Path:
    for name in ("source", "store", "scratch", "annex", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    (tmp_path / "annex" / "content").write_text("samples")
    (tmp_path / "annex" / "other").write_text(SECRET)
    (tmp_path / "source" / "header").write_text("header")
    (tmp_path / "source" / "samples").symlink_to(tmp_path / "annex" / "content")
    (tmp_path / "source" / "astray").symlink_to(tmp_path / "outside" / "secret")
    return tmp_path


def enclosed(places: Path, attempts: dict[str, Callable[[], object]]) -> dict[str, str]:
    """What came of each attempt in an enclosed process: the name of an error, or nothing."""

    def attempt_all() -> dict[str, str]:
        readable = [places / "source", places / "annex" / "content"]
        enclosure.enclose(readable, places / "store", places / "scratch")
        found = {}
        for name, attempt in attempts.items():
            try:
                attempt()
                found[name] = ""
            except OSError as error:
                found[name] = type(error).__name__
        return found

    return apart(attempt_all)


@enclosing
def test_nothing_else_is_read_written_or_started(places: Path) -> None:
    outside, store, scratch = places / "outside", places / "store", places / "scratch"
    refused: dict[str, Callable[[], object]] = {
        "a file elsewhere": (outside / "secret").read_text,
        "a folder elsewhere": lambda: list(outside.iterdir()),
        "a link out of the recording": (places / "source" / "astray").read_text,
        "the link's neighbour in the annex": (places / "annex" / "other").read_text,
        "accounts": Path("/etc/passwd").read_text,
        "our environment": Path("/proc/self/environ").read_text,
        "our memory": lambda: Path("/proc/self/mem").open("rb"),
        "another's environment": Path(f"/proc/{os.getppid()}/environ").read_text,
        "to write elsewhere": lambda: (outside / "new").write_text("x"),
        "to change the recording": lambda: (places / "source" / "header").write_text("x"),
        "to empty the recording": lambda: os.truncate(places / "annex" / "content", 0),
        "to remove the recording": (places / "source" / "header").unlink,
        "a link in the store": lambda: (store / "link").symlink_to(outside / "secret"),
        "a hard link in the store": lambda: os.link(places / "source" / "header", store / "link"),
        "a pipe in the store": lambda: os.mkfifo(store / "pipe"),
        "another program": lambda: subprocess.run(["/bin/true"], check=True),
    }
    assert {
        name: bool(error) for name, error in enclosed(places, refused).items()
    } == dict.fromkeys(refused, True)
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (places / "annex" / "content").read_text() == "samples"
    assert list(store.iterdir()) == list(scratch.iterdir()) == []


@enclosing
@pytest.mark.parametrize("has_seccomp", [True, False])
def test_no_connection_is_made_taken_or_left_open(
    places: Path, has_seccomp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of TCP Landlock alone sees to it; UDP and sockets of services are seccomp's."""
    if not has_seccomp:
        monkeypatch.setattr(platform, "machine", lambda: "s390x")
    service = places / "outside" / "service"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        socket.create_connection(server.getsockname()) as connected,
    ):
        address = server.getsockname()
        local.bind(str(service))
        local.listen()
        tcp: dict[str, Callable[[], object]] = {
            "to connect": lambda: socket.create_connection(address),
            "to listen": lambda: socket.create_server(("127.0.0.1", 0)),
        }
        others: dict[str, Callable[[], object]] = {
            "udp": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", address),
            "a service": lambda: socket.socket(socket.AF_UNIX).connect(str(service)),
            "raw": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
            "io_uring": lambda: libc.syscall(425, 1, bytes(120)),
        }
        open_one: dict[str, Callable[[], object]] = {"an open one": lambda: connected.send(b"x")}
        errors = enclosed(places, {**tcp, **others, **open_one})
    assert errors["an open one"]
    if landlock.version() >= 4 or has_seccomp:
        assert {errors[name] for name in tcp} == {"PermissionError"}
    if has_seccomp and platform.machine() in ("x86_64", "aarch64"):
        assert {errors[name] for name in others} == {"PermissionError"}


@enclosing
@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls by their numbers there")
def test_no_process_is_left_behind(places: Path) -> None:
    """A thread may be started: what a conversion needs says so."""

    def call(number: int, flags: int = 0) -> None:
        if libc.syscall(number, flags, *[0] * 4) == 0:
            os._exit(0)  # of the child that there should not be

    without_a_thread = signal.SIGCHLD | 0x4000  # CLONE_VFORK
    attempts: dict[str, Callable[[], object]] = {
        "fork": lambda: os.fork() or os._exit(0),
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "the call fork": lambda: call(57),
        "the call clone": lambda: call(56, without_a_thread),
        "the call clone3": lambda: call(435),
    }
    errors = enclosed(places, attempts)
    assert errors.pop("the call clone3") == "OSError"  # ENOSYS
    assert errors == dict.fromkeys(errors, "PermissionError")


@enclosing
def test_what_a_conversion_needs_is_there(places: Path) -> None:
    scratch = places / "scratch"

    def in_a_thread() -> None:
        texts: list[str] = []
        reader = threading.Thread(
            target=lambda: texts.append((places / "source" / "header").read_text())
        )
        reader.start()
        reader.join()
        if texts != ["header"]:
            raise OSError

    def a_temporary_file() -> None:
        with tempfile.TemporaryFile(dir=scratch) as file:
            file.write(b"x")

    def links_of_our_own() -> None:
        with tempfile.TemporaryDirectory() as folder:
            assert Path(folder).parent == scratch
            Path(folder, "link").symlink_to(places / "source" / "samples")
            Path(folder, "link").read_text()

    def a_late_import() -> None:
        import zoneinfo

        import mne.io.nihon  # noqa: F401

        zoneinfo.ZoneInfo("Europe/Berlin")

    def its_home() -> None:
        (Path.home() / ".mne").mkdir()

    needed: dict[str, Callable[[], object]] = {
        "its own file": (places / "source" / "header").read_text,
        "content in an annex": (places / "source" / "samples").read_text,
        "a folder in the store": (places / "store" / "group").mkdir,
        "a file in the store": lambda: (places / "store" / "zarr.json").write_text("{}"),
        "a temporary file": a_temporary_file,
        "links of its own": links_of_our_own,
        "a thread": in_a_thread,
        "an import": a_late_import,
        "its home": its_home,
        "random numbers": lambda: np.random.default_rng().random(),
        "memory": Path("/proc/self/status").read_text,
        "nothing": lambda: Path(os.devnull).write_text("x"),
    }
    assert enclosed(places, needed) == dict.fromkeys(needed, "")


def test_older_kernels_are_asked_for_what_they_know(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 knows neither truncation nor the network; asking it for them is an error."""
    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    for version in range(1, landlock.version() + 1):
        monkeypatch.setattr(landlock, "version", lambda version=version: version)
        errors = enclosed(
            places,
            {
                "in": (places / "source" / "header").read_text,
                "out": (places / "outside" / "secret").read_text,
            },
        )
        assert errors == {"in": "", "out": "PermissionError"}, version


def test_a_crash_is_told_and_repeated() -> None:
    def crash() -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""

    for function, status in ((crash, -signal.SIGSEGV), (lambda: os._exit(3), 3)):
        with pytest.raises(DiedApart) as death:
            run_apart(function, lambda _: None)
        assert death.value.status == status
        with pytest.raises(DiedApart) as repeated:
            run_apart(death.value.repeat, lambda _: None)
        assert repeated.value.status == status


def test_what_it_writes_is_bounded() -> None:
    with pytest.raises(DiedApart):
        run_apart(lambda: bytes(200 << 20), lambda _: None)


def test_it_ends_with_its_worker() -> None:
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        run_apart(lambda: (signal.pause(), b"")[1], lambda pid: os.write(writer, b"%d" % pid))
    pid = int(os.read(reader, 20))
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    for descriptor in (reader, writer):
        os.close(descriptor)
    for _ in range(3000):
        state = Path(f"/proc/{pid}/stat")
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        threading.Event().wait(0.02)
    pytest.fail("it lives on")


def tasks_of(
    paths: Collection[str], folder: Path, repository_of: Callable[[Path, Path], str]
) -> list[Task]:
    """Tasks for some recordings of the fixture dataset, a copy of which goes to the folder."""
    commit = repository_of(FIXTURE_DATASET, folder / "dataset")
    repository = Repository(folder / "dataset")
    content = ContentSource.of(repository)
    destination = LocalDestination(folder / "serving")
    context = StoreContext("nm099999", commit, "3", "https://example.org/", "2020-01-01T00:00:00Z")
    return [
        Task(recording, content, context, destination, folder / str(number), Demand(1 << 29))
        for number, recording in enumerate(discover(Snapshot.read(repository, commit)))
        if recording.path in paths
    ]


HONEST = "sub-03/ses-01/eeg/sub-03_ses-01_task-rest_eeg.set"
ASTRAY = {
    "sub-01/eeg/sub-01_task-rest_eeg.edf": "read",
    "sub-02/eeg/sub-02_task-rest_eeg.vhdr": "write",
    "sub-04/eeg/sub-04_task-rest_eeg.bdf": "connect",
    "sub-05/ieeg/sub-05_task-rest_ieeg.edf": "change",
    "sub-06/emg/sub-06_task-rest_emg.bdf": "crash",
}


def led_astray(task: Task, turn: Turn) -> Result:
    """run_task with readers that do what hostile files might have them do."""
    outside = task.folder.parent / "outside"
    honest = convert.open_recording

    def dishonest(recording: LocalRecording) -> Any:
        deed = ASTRAY.get(recording.path)
        if deed == "read":
            (outside / "secret").read_text()
        elif deed == "write":
            (outside / "new").write_text("x")
        elif deed == "connect":
            socket.create_connection(("127.0.0.1", 9))
        elif deed == "crash":
            ctypes.string_at(0)
        elif deed == "change":
            recording.file.write_bytes(b"x")
        return honest(recording)

    convert.open_recording = dishonest  # type: ignore[assignment]
    return run_task(task, turn)


@enclosing
def test_a_reader_led_astray_costs_its_recording_only(
    tmp_path: Path, repository_of: Callable[[Path, Path], str]
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    tasks = tasks_of({*ASTRAY, HONEST}, tmp_path, repository_of)
    pool: WorkerPool[Task, Result] = WorkerPool(led_astray, 2, preload=CONVERSION)
    results = {task.recording.path: result for task, result in pool.run(tasks)}
    crash = results.pop("sub-06/emg/sub-06_task-rest_emg.bdf")
    assert isinstance(crash, WorkerDied)
    assert "SIGSEGV" in str(crash)
    outcomes = {path: result.outcome for path, result in results.items()}  # type: ignore[union-attr]
    good = [outcome for path, outcome in outcomes.items() if path not in ASTRAY]
    assert [type(outcome) for outcome in good] == [Converted]
    assert len(outcomes) == len(ASTRAY)
    for path, outcome in outcomes.items():
        if path in ASTRAY:
            assert isinstance(outcome, Deferred)
            assert outcome.reason is PendingReason.INFRA_FAILURE
            assert str(outcome.last_error).startswith("PermissionError")
            assert str(tmp_path) not in str(outcome.last_error)
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == ["secret"]
    published = [path for path in (tmp_path / "serving").rglob("*") if path.is_file()]
    assert published
    assert [path for path in published if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("version", [0, 7])
def test_a_run_says_once_where_nothing_can_be_enclosed(
    tmp_path: Path,
    repository_of: Callable[[Path, Path], str],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    repository_of(FIXTURE_DATASET, tmp_path / "dataset")
    monkeypatch.setattr(landlock, "version", lambda: version)
    notes: list[str] = []

    class Notes(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    summary = convert_dataset(
        tmp_path / "dataset",
        dest=tmp_path / "serving",
        dataset_id="nm099999",
        only=["sub-0[24]/*"],
        reporter=Notes(),
    )
    assert summary.converted == 2
    assert len([note for note in notes if "Landlock" in note]) == (version == 0)


def test_without_landlock_a_recording_is_converted_all_the_same(
    tmp_path: Path, repository_of: Callable[[Path, Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    [task] = tasks_of({"sub-04/eeg/sub-04_task-rest_eeg.bdf"}, tmp_path, repository_of)
    result = run_task(task, FreeTurn())
    assert isinstance(result.outcome, Converted)
    assert result.outcome.entry.groups[0].n_channels > 0
    assert not task.folder.exists()


def of_another(account: Any, task: Task) -> Any:
    entry = msgspec.structs.replace(account.entry, zarr="sub-01/another.zarr")
    return msgspec.structs.replace(account, entry=entry)


def out_of_schema(account: Any, task: Task) -> Any:
    entry = msgspec.structs.replace(account.entry, modalities=["smell"])
    return msgspec.structs.replace(account, entry=entry)


def with_a_link(account: Any, task: Task) -> Any:
    spool = task.folder / "scratch" / "events.arrow"
    spool.unlink()
    spool.symlink_to(task.folder.parent / "secret")
    return account


@enclosing
@pytest.mark.parametrize("lie", [of_another, out_of_schema, with_a_link])
def test_what_an_enclosed_process_tells_is_not_believed(
    lie: Callable[[Any, Task], Any],
    tmp_path: Path,
    repository_of: Callable[[Path, Path], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    [task] = tasks_of({"sub-06/emg/sub-06_task-rest_emg.bdf"}, tmp_path, repository_of)
    honest = task_module._account
    monkeypatch.setattr(task_module, "_account", lambda *given: lie(honest(*given), task))
    result = run_task(task, FreeTurn())
    assert isinstance(result.outcome, Deferred)
    assert result.spool is None
    assert not list((tmp_path / "serving").rglob("zarr.json"))


def test_what_a_conversion_leaves_behind_is_not_waited_for() -> None:
    def fork() -> str:
        return "left" if os.fork() else str(time.sleep(600))

    started = time.monotonic()
    assert apart(fork) == "left"
    assert time.monotonic() - started < 300


def test_the_standard_streams_are_not_inherited() -> None:
    master, terminal = pty.openpty()
    before = os.dup(0)
    os.dup2(terminal, 0)
    try:
        streams = [Path(f"/proc/self/fd/{number}") for number in range(3)]
        found = apart(lambda: [str(stream.readlink()) for stream in streams])
        assert found == [os.devnull] * 3
    finally:
        os.dup2(before, 0)
        for number in (master, terminal, before):
            os.close(number)
