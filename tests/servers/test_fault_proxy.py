from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from secrets import token_bytes

import pytest
from botocore.exceptions import ClientError

from tests.servers import faults
from tests.servers.fault_proxy import FaultProxy
from tests.servers.seaweedfs import S3Server

BODY = token_bytes(300_000)


@pytest.fixture
def proxy(s3_server: S3Server, bucket: str, fault_proxy: Callable[..., FaultProxy]) -> FaultProxy:
    s3_server.client().put_object(Bucket=bucket, Key="object", Body=BODY)
    return fault_proxy()


def received(proxy: FaultProxy, path: str) -> tuple[bytes, str]:
    """The bytes of a body that arrived, and how that ended."""
    connection = HTTPConnection(proxy.host, proxy.port, timeout=60)
    arrived = b""
    with closing(connection):
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            announced = int(answer.headers["Content-Length"])
            while piece := answer.read1():
                arrived += piece
        except OSError as broken:
            return arrived, type(broken).__name__
    return arrived, "whole" if len(arrived) == announced else "short"


def test_signed_requests_and_large_bodies_pass_unchanged(
    s3_server: S3Server, bucket: str, proxy: FaultProxy
) -> None:
    client = s3_server.client(proxy.endpoint)
    large = token_bytes(12_000_001)
    client.put_object(Bucket=bucket, Key="a folder/ü+1.bin", Body=large)

    assert client.get_object(Bucket=bucket, Key="a folder/ü+1.bin")["Body"].read() == large
    assert client.head_object(Bucket=bucket, Key="object")["ContentLength"] == len(BODY)
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 2
    [put] = proxy.exchanges("PUT", r"a folder/ü\+1\.bin$")
    assert (put.status, put.received >= len(large)) == (200, True)
    [head] = proxy.exchanges("HEAD")
    assert (head.status, head.sent) == (200, 0)
    assert [each.sent for each in proxy.exchanges("GET", "bin$")] == [len(large)]


def test_errors_come_as_s3_words_them_and_end_after_their_number(
    s3_server: S3Server, bucket: str, proxy: FaultProxy
) -> None:
    client = s3_server.client(proxy.endpoint)
    proxy.inject(faults.EXPIRED_TOKEN, method="PUT", path="/index")
    with pytest.raises(ClientError, match="ExpiredToken"):
        client.put_object(Bucket=bucket, Key="index", Body=BODY)
    proxy.inject(faults.SLOW_DOWN, method="PUT", skip=1, times=2)
    client.put_object(Bucket=bucket, Key="first", Body=b"passes")
    client.put_object(Bucket=bucket, Key="second", Body=b"is retried")

    assert [each.status for each in proxy.exchanges("PUT")] == [403, 200, 503, 503, 200]
    assert proxy.exchanges("PUT")[0].upstream_status is None
    kept = s3_server.client().list_objects_v2(Bucket=bucket)["Contents"]
    assert [each["Key"] for each in kept] == ["first", "object", "second"]


def test_a_body_breaks_off_or_changes_where_the_test_says(bucket: str, proxy: FaultProxy) -> None:
    proxy.inject(faults.Truncate(after=100_000))
    proxy.inject(faults.Stall(seconds=0.1, after=50_000))
    proxy.inject(faults.Reset(after=70_000))
    proxy.inject(faults.Reset())
    proxy.inject(faults.Stall(seconds=0.1))
    proxy.inject(faults.Flip(at=200_000))
    proxy.inject(faults.Drip(size=100_000, pause=0.01))
    path = f"/{bucket}/object"

    assert received(proxy, path) == (BODY[:100_000], "short")
    assert received(proxy, path) == (BODY[:50_000], "short")
    arrived, end = received(proxy, path)
    assert (BODY[:70_000].startswith(arrived), end) == (True, "ConnectionResetError")
    assert received(proxy, path) == (b"", "ConnectionResetError")
    assert received(proxy, path) == (b"", "RemoteDisconnected")
    arrived, end = received(proxy, path)
    assert [at for at, byte in enumerate(arrived) if byte != BODY[at]] == [200_000]
    assert (len(arrived), end) == (len(BODY), "whole")
    assert received(proxy, path) == (BODY, "whole")
    assert received(proxy, path) == (BODY, "whole")
    answered = [each.status for each in proxy.exchanges()]
    assert answered == [200, 200, 200, None, None, 200, 200, 200]


def test_a_lost_answer_hides_a_write_that_took_place(
    s3_server: S3Server, bucket: str, proxy: FaultProxy
) -> None:
    proxy.inject(faults.LoseAnswer(), method="PUT")
    client = s3_server.client(proxy.endpoint)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="index", Body=b"once", IfNoneMatch="*")

    lost, refused = proxy.exchanges("PUT")
    assert (lost.upstream_status, lost.status, refused.status) == (200, None, 412)


def test_a_gate_holds_a_request_until_it_opens(
    s3_server: S3Server, bucket: str, proxy: FaultProxy
) -> None:
    gate = faults.Gate()
    proxy.inject(gate, method="PUT", path="/held$", times=None)
    writer = threading.Thread(
        target=s3_server.client(proxy.endpoint).put_object,
        kwargs={"Bucket": bucket, "Key": "held", "Body": b"late"},
    )
    writer.start()
    gate.wait_until_reached()
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3_server.client().get_object(Bucket=bucket, Key="held")
    gate.open()
    writer.join()

    assert s3_server.client().get_object(Bucket=bucket, Key="held")["Body"].read() == b"late"


def test_closing_ends_a_stall_and_refuses_later_clients(bucket: str, proxy: FaultProxy) -> None:
    proxy.inject(faults.Stall(seconds=3600))
    outcome: list[tuple[bytes, str]] = []
    waiting = threading.Thread(target=lambda: outcome.append(received(proxy, f"/{bucket}/object")))
    waiting.start()
    while not proxy.exchanges():
        time.sleep(0.01)
    proxy.close()
    waiting.join()

    assert outcome == [(b"", "RemoteDisconnected")]
    assert received(proxy, f"/{bucket}/object") == (b"", "ConnectionRefusedError")
