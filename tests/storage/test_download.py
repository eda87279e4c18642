from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from secrets import token_bytes
from urllib.parse import quote

import pytest

from converter.storage import download, http
from converter.storage.download import Downloader, Failure
from converter.storage.hosts import HostGuard
from converter.storage.objects import Address, Bucket, Checksum, Place, Wanted, hashing
from converter.storage.transfer import Patience
from tests.servers import faults
from tests.servers.fault_proxy import FaultProxy
from tests.servers.seaweedfs import S3Server
from tests.storage.web_server import WebServer, endless, redirect, web_server, whole

MIB = 1 << 20
QUICK = Patience(stall=30.0, tries=4, most_tries=40, pause=0.01, longest_pause=0.05)
BODY = token_bytes(3_000_001)


@pytest.fixture
def proxy(s3_server: S3Server, bucket: str, fault_proxy: Callable[..., FaultProxy]) -> FaultProxy:
    s3_server.client().put_object(Bucket=bucket, Key="object", Body=BODY)
    return fault_proxy()


@pytest.fixture
def place(proxy: FaultProxy, bucket: str) -> Place:
    return place_of(proxy, bucket, "object")


def place_of(proxy: FaultProxy, bucket: str, key: str) -> Place:
    at = Bucket(proxy.endpoint, bucket)
    return Place.whole(f"bucket {bucket}", Address(at.url(key), at, key))


def md5(content: bytes) -> Checksum:
    new = hashing("md5")
    assert new is not None
    return Checksum("MD5", hashlib.md5(content).hexdigest(), new)


def wanted(target: Path, content: bytes, *places: Place) -> Wanted:
    return Wanted(target, places, len(content), len(content), md5(content))


def fetch(*files: Wanted, patience: Patience = QUICK, trusted: str = "127.0.0.1") -> list[Failure]:
    with Downloader(HostGuard(frozenset({trusted})), patience=patience) as downloader:
        return downloader.fetch_all(files)


def said(failures: list[Failure]) -> list[tuple[str, str]]:
    [failure] = failures
    assert not failure.wanted.target.exists()
    return [(attempt.verdict, attempt.said) for attempt in failure.attempts]


def statuses(proxy: FaultProxy) -> list[int | None]:
    return [exchange.status for exchange in proxy.exchanges("GET")]


@pytest.mark.parametrize("fault", [faults.Truncate(1_000_000), faults.Reset(1_000_000)])
def test_a_broken_transfer_resumes_where_it_stopped(
    proxy: FaultProxy, place: Place, tmp_path: Path, fault: faults.Fault
) -> None:
    proxy.inject(fault, times=3)
    assert fetch(wanted(tmp_path / "f", BODY, place)) == []
    assert (tmp_path / "f").read_bytes() == BODY
    assert statuses(proxy) == [200, 206, 206, 206]
    last = proxy.exchanges("GET")[-1]
    assert last.sent < len(BODY) - 1_000_000


def test_silence_is_broken_off_and_the_rest_asked_for(
    proxy: FaultProxy, place: Place, tmp_path: Path
) -> None:
    proxy.inject(faults.Stall(seconds=600, after=2_000_000))
    patience = Patience(stall=2.0, tries=10, pause=0.01)
    assert fetch(wanted(tmp_path / "f", BODY, place), patience=patience) == []
    assert (tmp_path / "f").read_bytes() == BODY
    assert statuses(proxy)[:2] == [200, 206]


def test_a_storm_of_errors_passes(
    s3_server: S3Server, bucket: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    contents = {f"f{number}": token_bytes(20_000) for number in range(20)}
    for name, content in contents.items():
        s3_server.client().put_object(Bucket=bucket, Key=name, Body=content)
    for fault in (faults.SLOW_DOWN, faults.INTERNAL_ERROR, faults.Reset()):
        proxy.inject(fault, share=0.2, times=None)
    patience = Patience(tries=30, pause=0.005, longest_pause=0.02)
    files = [
        wanted(tmp_path / name, content, place_of(proxy, bucket, name))
        for name, content in contents.items()
    ]
    assert fetch(*files, patience=patience) == []
    assert {name: (tmp_path / name).read_bytes() for name in contents} == contents


def test_an_error_that_stays_is_told_after_some_tries(
    proxy: FaultProxy, place: Place, tmp_path: Path
) -> None:
    proxy.inject(faults.SLOW_DOWN, times=None)
    assert said(fetch(wanted(tmp_path / "f", BODY, place))) == [("unreachable", "HTTP 503")]
    assert statuses(proxy) == [503] * QUICK.tries
    proxy.close()
    [(verdict, what)] = said(fetch(wanted(tmp_path / "f", BODY, place)))
    assert (verdict, what) == ("unreachable", "the connection was refused")


def test_absent_and_refused_are_told_apart(
    bucket: str, proxy: FaultProxy, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    absent = place_of(proxy, bucket, "no-such-object")
    failures = fetch(wanted(tmp_path / "f", BODY, absent, absent))
    assert said(failures) == [("absent", ""), ("absent", "")]
    assert failures[0].verdict == "absent"
    proxy.inject(faults.ACCESS_DENIED, path="/object", times=None)
    failures = fetch(wanted(tmp_path / "f", BODY, absent, place))
    assert said(failures) == [("absent", ""), ("unreachable", "HTTP 403")]
    assert failures[0].verdict == "unreachable"


def test_what_is_refused_to_all_is_asked_for_with_a_signature(
    s3_server: S3Server,
    bucket: str,
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    proxy.inject(faults.ACCESS_DENIED, path=r"^[^?]*$", times=None)
    keys = ("a b/é+&%.edf", "c")
    for key in keys:
        s3_server.client().put_object(Bucket=bucket, Key=key, Body=key.encode())
    for key in keys:
        place = place_of(proxy, bucket, key)
        assert fetch(wanted(tmp_path / quote(key, safe=""), key.encode(), place)) == []
    assert statuses(proxy) == [403, 200] * 2
    proxy.inject(faults.EXPIRED_TOKEN, times=None)
    failures = fetch(wanted(tmp_path / "f", b"c", place_of(proxy, bucket, "c")))
    assert said(failures) == [("unreachable", "HTTP 403")]
    assert "X-Amz-Signature" in proxy.exchanges()[-1].path
    assert "X-Amz" not in repr(failures[0].attempts)


def test_wrong_bytes_are_fetched_again_then_from_elsewhere(
    proxy: FaultProxy, place: Place, tmp_path: Path
) -> None:
    proxy.inject(faults.Flip(at=2_000_000), times=2)
    assert fetch(wanted(tmp_path / "f", BODY, place)) == []
    assert statuses(proxy) == [200] * 3
    proxy.inject(faults.Flip(at=0), times=3)
    assert fetch(wanted(tmp_path / "g", BODY, place, place)) == []
    assert statuses(proxy) == [200] * 7
    proxy.inject(faults.Flip(at=0), times=None)
    failures = fetch(wanted(tmp_path / "h", BODY, place))
    wrong = hashlib.md5(bytes([BODY[0] ^ 0xFF]) + BODY[1:]).hexdigest()
    expected = hashlib.md5(BODY).hexdigest()
    assert said(failures) == [("wrong", f"the MD5 {wrong}, where {expected} is expected")]
    assert failures[0].verdict == "wrong"
    short = Wanted(tmp_path / "s", (place,), 10, 10, md5(bytes(10)))
    assert said(fetch(short)) == [("wrong", f"{len(BODY)} bytes, where 10 is expected")]


@pytest.mark.parametrize("size", [0, 1, 3 * MIB, 10 * MIB + 7])
def test_a_large_object_comes_in_parts(
    s3_server: S3Server,
    bucket: str,
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    monkeypatch.setattr(download, "SPAN", MIB)
    content = token_bytes(size)
    s3_server.client().put_object(Bucket=bucket, Key="large", Body=content)
    proxy.inject(faults.Reset(after=300_000), skip=1, times=3)
    proxy.inject(faults.SLOW_DOWN, skip=2, times=3)
    patience = Patience(tries=10, pause=0.01, longest_pause=0.05)
    file = wanted(tmp_path / "f", content, place_of(proxy, bucket, "large"))
    assert fetch(file, patience=patience) == []
    assert (tmp_path / "f").read_bytes() == content
    ranged = [exchange for exchange in proxy.exchanges("GET") if exchange.status == 206]
    assert len(ranged) >= (-(-size // MIB) if size > MIB else 0)


def test_an_object_that_changes_on_the_way_is_never_mixed(
    s3_server: S3Server, bucket: str, proxy: FaultProxy, place: Place, tmp_path: Path
) -> None:
    changed = token_bytes(len(BODY))
    gate = faults.Gate()
    proxy.inject(faults.Truncate(1_000_000))
    proxy.inject(gate, skip=1)
    outcome: list[list[Failure]] = []
    fetching = threading.Thread(
        target=lambda: outcome.append(fetch(wanted(tmp_path / "f", changed, place)))
    )
    fetching.start()
    gate.wait_until_reached()
    s3_server.client().put_object(Bucket=bucket, Key="object", Body=changed)
    gate.open()
    fetching.join()
    assert outcome == [[]]
    assert (tmp_path / "f").read_bytes() == changed


@pytest.mark.parametrize("chunk", [MIB, 700_000, 5 * MIB])
def test_chunks_make_a_file_and_a_missing_one_makes_none(
    s3_server: S3Server, bucket: str, proxy: FaultProxy, tmp_path: Path, chunk: int
) -> None:
    pieces = [BODY[start : start + chunk] for start in range(0, len(BODY), chunk)]
    for number, piece in enumerate(pieces):
        s3_server.client().put_object(Bucket=bucket, Key=f"c{number}", Body=piece)
    at = Bucket(proxy.endpoint, bucket)
    place = Place("chunks", lambda n: Address(at.url(f"c{n}")), len(pieces), chunk)
    proxy.inject(faults.Truncate(100_000), times=2)
    assert fetch(wanted(tmp_path / "f", BODY, place)) == []
    assert (tmp_path / "f").read_bytes() == BODY
    unsized = Wanted(tmp_path / "u", (place,), 100 * MIB, None, md5(BODY))
    assert fetch(unsized) == []
    s3_server.client().delete_object(Bucket=bucket, Key=f"c{len(pieces) - 1}")
    assert said(fetch(wanted(tmp_path / "g", BODY, place))) == [("absent", "")]


def test_a_server_that_ignores_ranges_gives_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "SPAN", MIB)
    with web_server(whole(BODY)) as server:
        place = Place.whole("web", Address(f"{server.url}/x"))
        assert fetch(wanted(tmp_path / "f", BODY, place)) == []
    assert (tmp_path / "f").read_bytes() == BODY
    assert any("Range" in headers for _, headers in server.requests)
    assert "Range" not in server.requests[-1][1]
    asked = {headers["Accept-Encoding"] for _, headers in server.requests}
    assert asked == {"identity"}


def test_a_body_is_stored_as_it_comes(tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(b"not gzip at all")
        handler.close_connection = True

    with web_server(answer) as server:
        place = Place.whole("web", Address(f"{server.url}/x"))
        assert fetch(wanted(tmp_path / "f", b"not gzip at all", place)) == []


def test_a_body_without_end_stops_at_the_limit(tmp_path: Path) -> None:
    with web_server(endless) as server:
        place = Place.whole("web", Address(f"{server.url}/x"))
        [(verdict, what)] = said(fetch(wanted(tmp_path / "f", bytes(MIB), place)))
        assert (verdict, what) == ("wrong", f"more than {MIB} bytes, where no more is expected")
        unsized = Wanted(tmp_path / "g", (place,), 2 * MIB)
        assert said(fetch(unsized))[0][0] == "wrong"


def test_redirects_are_followed_within_bounds(
    s3_server: S3Server, bucket: str, place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    with web_server(redirect(f"{proxy.endpoint}/{bucket}/object?secret=1")) as server:
        found = Place.whole("web", Address(f"{server.url}/x"))
        assert fetch(wanted(tmp_path / "f", BODY, found)) == []
        failures = fetch(wanted(tmp_path / "g", BODY, found), trusted=server.host)
        [(verdict, what)] = said(failures)
        assert verdict == "unreachable"
        assert what == f"127.0.0.1:{proxy.port} is not public, nor a trusted host"
    with web_server(lambda handler: redirect(handler.path + "x")(handler)) as server:
        found = Place.whole("web", Address(f"{server.url}/x"))
        [(verdict, what)] = said(fetch(wanted(tmp_path / "g", BODY, found)))
        assert (verdict, what) == ("unreachable", "more than 5 redirects")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_private_hosts_are_not_asked(tmp_path: Path, host: str) -> None:
    with web_server(whole(b"secret")) as server:
        port = server.host.partition(":")[2]
        place = Place.whole("web", Address(f"http://{host}:{port}/x"))
        failures = fetch(wanted(tmp_path / "f", b"secret", place), trusted="example.org")
        [(verdict, what)] = said(failures)
        assert verdict == "unreachable"
        assert what.startswith(f"{host}:{port} is")
        assert what.endswith("not public, nor a trusted host")
        assert server.requests == []


def test_the_first_failure_stops_the_others(
    bucket: str, proxy: FaultProxy, place: Place, tmp_path: Path
) -> None:
    held = faults.Drip(size=1000, pause=0.05)
    proxy.inject(held, path="/object", times=None)
    files = [wanted(tmp_path / f"slow{number}", BODY, place) for number in range(3)]
    absent = wanted(tmp_path / "f", BODY, place_of(proxy, bucket, "no-such-object"))
    assert [failure.wanted for failure in fetch(*files, absent)] == [absent]
    assert list(tmp_path.iterdir()) == []


def test_retry_after_is_kept_within_reason(tmp_path: Path) -> None:
    asked: list[None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(None)
        if len(asked) > 1:
            return whole(b"now")(handler)
        handler.send_response(429)
        handler.send_header("Retry-After", "86400")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with web_server(answer) as server:
        place = Place.whole("web", Address(f"{server.url}/x"))
        assert fetch(wanted(tmp_path / "f", b"now", place)) == []


def test_an_idle_connection_that_was_closed_costs_nothing(tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        whole(b"hello")(handler)
        handler.close_connection = True  # without telling

    def serve(server: WebServer) -> None:
        place = Place.whole("web", Address(f"{server.url}/x"))
        files = [wanted(tmp_path / f"f{number}", b"hello", place) for number in range(30)]
        assert fetch(*files, patience=Patience(tries=1)) == []

    with web_server(answer) as server:
        serve(server)


def test_https_is_checked_and_its_host_looked_at_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with web_server(whole(b"hello"), context) as server:
        port = server.host.partition(":")[2]
        place = Place.whole("web", Address(f"https://localhost:{port}/x"))
        failures = fetch(wanted(tmp_path / "f", b"hello", place), trusted="localhost")
        assert said(failures) == [("unreachable", "no TLS connection that can be trusted")]
        trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        monkeypatch.setattr(http, "_tls", lambda: trusting)
        failures = fetch(wanted(tmp_path / "f", b"hello", place), trusted="example.org")
        assert said(failures)[0][1].endswith("is not public, nor a trusted host")
        files = [wanted(tmp_path / f"f{n}", b"hello", place) for n in range(20)]
        assert fetch(*files, trusted="localhost") == []


def test_a_proxy_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server(whole(b"hello")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "none.invalid")
        place = Place.whole("web", Address("http://archive.invalid/a%20b?c=d"))
        assert fetch(wanted(tmp_path / "f", b"hello", place)) == []
        private = Place.whole("web", Address("http://10.0.0.1/x"))
        assert said(fetch(wanted(tmp_path / "g", b"hello", private)))[0][0] == "unreachable"
    assert [path for path, _ in proxy.requests] == ["http://archive.invalid/a%20b?c=d"]
    assert proxy.requests[0][1]["Host"] == "archive.invalid"


def test_amazon_may_name_another_region() -> None:
    at = Bucket("https://s3.amazonaws.com", "my.ds", "us-east-1")
    moved = Address(at.url("k"), at, "k").in_region("eu-west-1")
    assert moved is not None
    assert moved.url == "https://s3.eu-west-1.amazonaws.com/my.ds/k"
    assert moved.in_region("eu-west-1") is None
    assert moved.in_region("evil.org/") is None
    elsewhere = Bucket("https://minio.lab", "ds")
    assert Address(elsewhere.url("k"), elsewhere, "k").in_region("eu-west-1") is None
