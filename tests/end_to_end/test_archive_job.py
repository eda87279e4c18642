"""The whole job as an archive runs it: from a dataset's id to a copy that anybody reads."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from botocore.exceptions import ClientError
from jsonschema import Draft202012Validator

from converter import convert_dataset
from converter.contract.validation import (
    INDEX_SCHEMA,
    MANIFEST_SCHEMA,
    REPORT_SCHEMA,
    read_schema,
)
from tests.dataset.git_server import serving
from tests.servers.annex import AnnexDataset, annexed
from tests.servers.backend import Backend, listening
from tests.servers.faults import ACCESS_DENIED, Gate
from tests.servers.seaweedfs import S3Server

from ..fixture_outcomes import FIXTURE_DATASET, OUTCOMES, STORED
from .anonymous import UndatedHTTP, window
from .archive import (
    CONTRACT_BASE,
    RUN_SECONDS,
    Archive,
    Changed,
    Copy,
    Disturbed,
    finish,
    need_git_annex,
)
from .history import event_rows, state

DATASET_ID = "nm099999"


@dataclass(frozen=True)
class Job:
    """A finished run of the fixture dataset: its copy, and its reports as they arrived."""

    copy: Copy
    report: dict[str, Any]
    posted: dict[str, Any]
    summary: dict[str, Any]

    @property
    def index(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.copy.read("index.json"))
        return found


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> AnnexDataset:
    """The fixture dataset with all its content."""
    need_git_annex()
    return annexed(FIXTURE_DATASET, tmp_path_factory.mktemp("annexed") / DATASET_ID)


@pytest.fixture(scope="module")
def local(dataset: AnnexDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the same commit in a folder, made from the local annex."""
    dest = tmp_path_factory.mktemp("local")
    convert_dataset(
        dataset.work,
        dest=dest,
        scratch=tmp_path_factory.mktemp("scratch"),
        contract_base=CONTRACT_BASE,
        jobs=2,
    )
    return dest


@pytest.fixture(scope="module", params=[None, "70KiB"], ids=["whole", "chunked"])
def job(
    request: pytest.FixtureRequest,
    dataset: AnnexDataset,
    s3_server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Job]:
    """A run of the fixture dataset, with its content in whole objects or in chunks."""
    chunk, bucket = request.param, s3_server.new_bucket()
    name = "chunked" if chunk else "whole"
    dataset.add_s3_remote(s3_server, bucket, name=name, fileprefix="ds/", chunk=chunk)
    dataset.copy_to(name)
    stored = s3_server.client().list_objects_v2(Bucket=bucket)["Contents"]
    assert any("-S71680-C2--" in each["Key"] for each in stored) == bool(chunk)
    folder = tmp_path_factory.mktemp(name)
    bare = dataset.push(folder / "repositories" / f"{DATASET_ID}.git")
    archive = Archive(
        server=s3_server,
        bucket=s3_server.new_bucket(),
        dataset_id=DATASET_ID,
        template=f"{bare.parent.as_uri()}/{{dataset_id}}.git",
        content=s3_server.endpoint,
        folder=folder,
    )
    yield run_job(archive.copy(), folder)
    dataset.drop_from(name, ".")


def run_job(copy: Copy, folder: Path) -> Job:
    """Run the job; everything that it is told to write is there, and its scratch files are not."""
    files = {name: folder / f"{name}.json" for name in ("callback", "json", "log-json")}
    options = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    with listening() as backend:
        run = copy.run(*options, "--callback-url", backend.url)
    assert f"{len(OUTCOMES)} recordings = {len(STORED)} stores" in run.out
    assert len(files["log-json"].read_text().splitlines()) >= len(STORED)
    assert not list(copy.scratch.iterdir())
    [(_, _, posted)] = backend.received
    return Job(
        copy,
        report=json.loads(files["callback"].read_bytes()),
        posted=json.loads(posted),
        summary=json.loads(files["json"].read_bytes()),
    )


def test_the_copy_equals_one_in_a_folder(job: Job, local: Path, tmp_path: Path) -> None:
    """In every number, entry and event; only the addresses of the bytes are others."""
    found, expected = job.copy.state(tmp_path), state(local, DATASET_ID)
    for each in (found, expected):
        for address in ("data_base", "s3_uri", "s3_region", "events_parquet"):
            del each["index"][address]
    assert found == expected
    assert job.summary["converted"] == len(STORED)


def test_the_documents_fit_their_schemas(job: Job) -> None:
    for name, schema in (("index.json", INDEX_SCHEMA), ("manifest.json", MANIFEST_SCHEMA)):
        validate(json.loads(job.copy.read(name)), schema)
    assert job.index["data_base"] == job.copy.url
    assert job.index["s3_uri"] == f"s3://{job.copy.archive.bucket}/{job.copy.root}"


def validate(document: Any, schema: str) -> None:
    """By the schema in schemas/, with another validator than the converter's."""
    Draft202012Validator(read_schema(schema)).validate(document)


def test_who_cannot_list_reads_all_by_the_addresses_of_the_index(job: Job, local: Path) -> None:
    server = job.copy.archive.server
    client = server.anonymous_client()
    bucket, _, root = job.index["data_base"].removeprefix(f"{server.endpoint}/").partition("/")
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_objects_v2(Bucket=bucket, Prefix=root)

    def read(name: str, span: str = "") -> bytes:
        asked = {"Range": span} if span else {}
        return client.get_object(Bucket=bucket, Key=root + name, **asked)["Body"].read()

    index = json.loads(read("index.json"))
    assert len(index["stores"]) == len(STORED)
    events = read(index["events_parquet"].removeprefix(index["data_base"]))
    assert pq.read_table(BytesIO(events)).num_rows == index["events_row_count"]
    [listed] = json.loads(read("manifest.json"))["files"]
    assert (listed["name"], listed["size_bytes"]) == ("events.parquet", len(events))
    for entry in index["stores"]:
        for group in entry["groups"]:
            name = f"{entry['zarr']}/{group['name']}/0"
            samples = window(read, name)
            expected = zarr.open_array(local / DATASET_ID / "zarr" / name, mode="r")
            assert samples.shape[1] == min(group["chunk_samples"], group["n_samples"])
            np.testing.assert_array_equal(samples, expected[:, : samples.shape[1]])


def arrays(index: dict[str, Any]) -> list[str]:
    """URLs of level 0 and the last view of every group that has one."""
    found = []
    for entry in index["stores"]:
        for group in entry["groups"]:
            base = f"{index['data_base']}{entry['zarr']}/{group['name']}"
            found.append(f"{base}/0")
            if group["n_view_levels"]:
                found.append(f"{base}/view/{group['n_view_levels']}")
    return found


def test_zarrita_reads_what_zarr_python_reads(job: Job, local: Path, tmp_path: Path) -> None:
    modules = Path(sys.prefix) / "zarrita" / "node_modules"
    node = shutil.which("node")
    if node is None or not modules.is_dir():
        pytest.skip("zarrita is not installed (scripts/environment.sh does it where npm is)")
    (tmp_path / "node_modules").symlink_to(modules)
    script = shutil.copy(Path(__file__).with_name("read_arrays.mjs"), tmp_path)
    urls = arrays(job.index)
    assert sum("/view/" in url for url in urls) >= len(STORED) - 1
    done = subprocess.run(
        [node, script], input=json.dumps(urls), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for url, read in zip(urls, json.loads(done.stdout), strict=True):
        array = zarr.open_array(url, mode="r")
        samples = np.ascontiguousarray(array[:])
        assert (read["dtype"], tuple(read["shape"])) == ("int16", samples.shape)
        assert read["sha256"] == hashlib.sha256(samples.tobytes()).hexdigest()
        name = url.removeprefix(job.copy.url)
        there = zarr.open_array(local / DATASET_ID / "zarr" / name, mode="r")
        np.testing.assert_array_equal(samples, there[:])


def test_duckdb_reads_the_events_over_http(job: Job, local: Path) -> None:
    with duckdb.connect() as connection:
        connection.register_filesystem(UndatedHTTP())
        found = connection.execute(
            "select store_path, group_name, count(*), sum(sample_index), round(sum(onset_s), 6) "
            "from read_parquet($url) group by all order by all",
            {"url": job.index["events_parquet"]},
        ).fetchall()
    expected: dict[tuple[str, str], list[float]] = {}
    for row in event_rows(local / DATASET_ID / "zarr"):
        sums = expected.setdefault((row["store_path"], row["group_name"]), [0, 0, 0.0])
        sums[0] += 1
        sums[1] += row.get("sample_index", 0)
        sums[2] += row.get("onset_s", 0.0)
    rounded = [(*key, n, samples, round(s, 6)) for key, (n, samples, s) in expected.items()]
    assert found == sorted(rounded)


def test_the_report_of_a_run(job: Job) -> None:
    validate(job.report, REPORT_SCHEMA)
    assert job.posted == job.report
    index, report = job.index, job.report
    assert report["status"] == "published"
    assert report["commit"] == index["source_commit"]
    counts = ("store_count", "failure_count", "pending_count", "discovered_count")
    for name in (*counts, "errors", "events_row_count"):
        assert report[name] == index[name]
    assert report["converted"] == len(STORED)
    server, bucket = job.copy.archive.server, job.copy.archive.bucket
    head = server.anonymous_client().head_object(Bucket=bucket, Key=f"{job.copy.root}index.json")
    assert report["index_etag"] == head["ETag"]


@dataclass(frozen=True)
class Failing:
    """A run that can publish nothing: what is wrong with it, and what its sentence says."""

    says: str
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str | None], ...] = ()


FAILING = {
    "no such commit": Failing("has no commit 0000", ("--commit", "0" * 40)),
    "no such branch": Failing("'nowhere' was given for a commit", ("--commit", "nowhere")),
    "no such bucket": Failing("the bucket does not exist", ("--dest", "s3://no-such-bucket")),
    "no bucket": Failing("s3://bucket/prefix expected", ("--dest", "s3://")),
    "no name of a bucket": Failing("the name of a bucket was expected", ("--dest", "s3://?")),
    "no way to a prefix": Failing("s3://bucket/prefix expected", ("--dest", "s3://bucket/../a")),
    "no endpoint": Failing("'nonsense'", ("--endpoint-url", "nonsense")),
    "unknown key": Failing(
        "the credentials are not valid", environment=(("AWS_ACCESS_KEY_ID", "unknown-key"),)
    ),
    "wrong key": Failing(
        "the credentials are not valid", environment=(("AWS_SECRET_ACCESS_KEY", "wrong-key"),)
    ),
    "no credentials": Failing(
        "no AWS credentials were found",
        environment=(("AWS_ACCESS_KEY_ID", None), ("AWS_SECRET_ACCESS_KEY", None)),
    ),
}


@pytest.mark.parametrize("why", FAILING)
def test_a_run_that_can_publish_nothing(changed: Changed, tmp_path: Path, why: str) -> None:
    failing, copy, file = FAILING[why], changed.archive.copy(), tmp_path / "report.json"
    with listening() as backend:
        reports = ("--callback", str(file), "--callback-url", backend.url)
        changes = dict(failing.environment)
        run = copy.run(*reports, *failing.options, code=1, environment=changes)
    check_failed(run.err, failing.says, file, backend)
    assert copy.keys() == []


def check_failed(said: str, expected: str, file: Path, backend: Backend) -> None:
    """One sentence on the standard error, and the same in the report."""
    [line] = said.splitlines()
    assert line.startswith("nemar-convert: ")
    assert expected in line
    report = json.loads(file.read_bytes())
    validate(report, REPORT_SCHEMA)
    [(_, _, posted)] = backend.received
    assert json.loads(posted) == report
    assert report["status"] == "failed"
    assert report["store_count"] is None
    assert report["error"]


@pytest.mark.slow
def test_an_endpoint_that_cannot_be_reached(changed: Changed, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    with socket.socket() as unheard, listening() as backend:
        unheard.bind(("127.0.0.1", 0))
        copy = changed.archive.copy(f"http://127.0.0.1:{unheard.getsockname()[1]}")
        run = copy.run("--callback", str(file), "--callback-url", backend.url, code=1)
    check_failed(run.err, "the server cannot be reached", file, backend)


def test_a_bucket_that_may_not_be_written(disturbed: Disturbed, tmp_path: Path) -> None:
    before = disturbed.copy.objects()
    disturbed.copies.inject(ACCESS_DENIED, method="PUT", times=None)
    run = disturbed.convert("-q", "--callback", str(tmp_path / "report.json"), code=1)
    [line] = run.err.splitlines()
    assert "access is denied" in line
    assert disturbed.copy.objects() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_report_of_an_interrupted_run(
    disturbed: Disturbed, tmp_path: Path, number: int
) -> None:
    """By a signal before there is anything that could be published."""
    gate, file = Gate(), tmp_path / "report.json"
    disturbed.copies.inject(gate, method="GET", path=r"index\.json")
    with listening() as backend:
        run = disturbed.copy.start("--callback", str(file), "--callback-url", backend.url)
        gate.wait_until_reached(RUN_SECONDS)
        run.send_signal(number)
        finish(run, 130)
    report = json.loads(file.read_bytes())
    validate(report, REPORT_SCHEMA)
    assert report["status"] == "interrupted"
    assert [json.loads(body) for _, _, body in backend.received] == [report]


REPOSITORY_TOKEN = "repository-token-5f1c"
CALLBACK_TOKEN = "callback-token-9e2a"


def test_secrets_are_told_to_nobody(disturbed: Disturbed, tmp_path: Path) -> None:
    """In runs that publish, lose a recording, or fail at either end."""
    server = disturbed.copy.archive.server
    session = "session-token-77b3"
    secrets = [REPOSITORY_TOKEN, CALLBACK_TOKEN, server.access_key, server.secret_key, session]
    secrets += ["X-Amz-Signature", "X-Amz-Credential", "Signature=", "key=hush"]
    disturbed.content.inject(ACCESS_DENIED, path=disturbed.changed.asked_for(2), times=None)
    disturbed.content.inject(ACCESS_DENIED, path="^[^?]*$", times=None)  # what is not signed
    told: list[str] = []
    with serving(disturbed.changed.bare.parent) as git, listening() as backend:
        git.password = REPOSITORY_TOKEN
        run = partial(run_and_tell, disturbed, backend, tmp_path, told)
        template = git.template(f"token:{REPOSITORY_TOKEN}@")
        run(template, 0)
        assert disturbed.content.exchanges("GET", "X-Amz-Signature")
        backend.statuses = [403]
        run(template.replace(REPOSITORY_TOKEN, f"{REPOSITORY_TOKEN}-no-more"), 1)
        disturbed.copies.inject(ACCESS_DENIED, method="PUT", path=r"index\.json", times=None)
        run(template, 1)
        disturbed.copies.inject(ACCESS_DENIED, times=None)
        run(template, 1, AWS_SESSION_TOKEN=session)
    tokens = {headers["Authorization"] for _, headers, _ in backend.received}
    assert tokens == {f"Bearer {CALLBACK_TOKEN}"}
    told += [body.decode() for _, _, body in backend.received]
    told += [content.decode("latin-1") for content in disturbed.copy.objects().values()]
    told += [file.read_text("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    assert len(told) > 20
    assert [(secret, text) for secret in secrets for text in told if secret in text] == []


def run_and_tell(
    disturbed: Disturbed,
    backend: Backend,
    folder: Path,
    told: list[str],
    template: str,
    code: int,
    **environment: str,
) -> None:
    """Run with everything that can be written, in a cache of its own; keep what was said."""
    number = len(told)
    archive = replace(disturbed.copy.archive, template=template, folder=folder)
    copy = replace(disturbed.copy, archive=archive)
    options = ["-v", "--commit", disturbed.changed.newer, "--callback-url", backend.url]
    for name in ("callback", "json", "log-json"):
        options += [f"--{name}", str(folder / f"{name}-{number}.json")]
    environment["NEMAR_CALLBACK_TOKEN"] = CALLBACK_TOKEN
    run = copy.run(*options, code=code, environment=environment)
    told += [run.out, run.err]
