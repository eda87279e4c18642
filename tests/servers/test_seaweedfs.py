from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.servers.seaweedfs import S3Server


def test_anonymous_clients_get_objects_and_neither_list_nor_write(
    s3_server: S3Server, bucket: str
) -> None:
    owner, anonymous = s3_server.client(), s3_server.anonymous_client()
    owner.put_object(Bucket=bucket, Key="a/b.bin", Body=b"bytes")

    assert anonymous.get_object(Bucket=bucket, Key="a/b.bin")["Body"].read() == b"bytes"
    assert [found["Key"] for found in owner.list_objects_v2(Bucket=bucket)["Contents"]] == [
        "a/b.bin"
    ]
    with pytest.raises(ClientError, match="AccessDenied"):
        anonymous.list_objects_v2(Bucket=bucket)
    with pytest.raises(ClientError, match="AccessDenied"):
        anonymous.put_object(Bucket=bucket, Key="a/c.bin", Body=b"")


def test_a_conditional_write_is_refused_when_its_condition_does_not_hold(
    s3_server: S3Server, bucket: str
) -> None:
    client = s3_server.client()
    first = client.put_object(Bucket=bucket, Key="index", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="index", Body=b"2", IfNoneMatch="*")

    client.put_object(Bucket=bucket, Key="index", Body=b"3", IfMatch=first["ETag"])
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="index", Body=b"4", IfMatch=first["ETag"])
    assert client.get_object(Bucket=bucket, Key="index")["Body"].read() == b"3"


def test_an_object_and_a_bucket_that_are_not_there_are_reported_as_such(
    s3_server: S3Server, bucket: str
) -> None:
    for client in (s3_server.client(), s3_server.anonymous_client()):
        with pytest.raises(ClientError, match="NoSuchKey"):
            client.get_object(Bucket=bucket, Key="absent")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3_server.client().put_object(Bucket="no-such-bucket", Key="a", Body=b"")
