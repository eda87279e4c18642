"""A bucket's objects: listed, read and sent with their content checked, removed."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from .destination import DestinationError, Document, Superseded
from .s3_client import S3Options, explained, is_absence, new_client, status_of
from .s3_content import LARGEST_SINGLE, PART, Content, Stored, etag_of
from .s3_requests import ObjectRequests

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef


class _Condition(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


PARTS_AT_ONCE: Final = 8
BATCH: Final = 1000  # keys that S3 deletes in one request
DELETE_ATTEMPTS: Final = 3
PUT_ATTEMPTS: Final = 2
READ_ATTEMPTS: Final = 4


class Bucket:
    """One bucket, for many threads at once. Every method raises DestinationError, with the key."""

    def __init__(self, name: str, options: S3Options) -> None:
        self.name = name
        with explained(f"s3://{name} cannot be used"):
            from botocore.session import get_session

            session = get_session()
            self._client: S3Client = new_client(session, options)
            self._requests = ObjectRequests(name, session, self._client, options)

    def list(self, prefix: str) -> dict[str, Stored]:
        """The objects whose keys begin with `prefix`, by what follows it."""
        with self._explained(prefix, "listed"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.name, Prefix=prefix
            )
            return {
                found["Key"][len(prefix) :]: Stored(found["Size"], found["ETag"].strip('"'))
                for page in pages
                for found in page.get("Contents", ())
            }

    def head(self, key: str) -> Mapping[str, str] | None:
        """An object's headers, by name in lower case; None when it is not there."""
        from botocore.exceptions import ClientError

        with self._explained(key, "read"):
            try:
                return self._requests.send("HEAD", key, {})
            except ClientError as error:
                if is_absence(error):
                    return None
                raise

    def read(self, key: str) -> Document | None:
        """An object's bytes, and as their version its ETag; None when it is not there."""
        from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

        with self._explained(key, "read"):
            for attempt in range(1, READ_ATTEMPTS + 1):
                try:
                    answer = self._client.get_object(Bucket=self.name, Key=key)
                    content = answer["Body"].read()
                except ClientError as error:
                    if is_absence(error):
                        return None
                    raise
                except (HTTPClientError, IncompleteReadError):
                    if attempt == READ_ATTEMPTS:
                        raise
                    continue
                if Content.of_bytes(content).may_have(answer["ResponseMetadata"]["HTTPHeaders"]):
                    return Document(content, answer["ETag"])
        raise DestinationError(
            f"s3://{self.name}/{key} was read {READ_ATTEMPTS} times, and what came does not fit "
            "its ETag."
        )

    def download(self, key: str, path: Path) -> bool:
        """Fetch an object into a file that is not there yet; whether there is such an object."""
        for _ in range(READ_ATTEMPTS):
            if (headers := self.head(key)) is None:
                return False
            with self._explained(key, "read"):
                self._client.download_file(self.name, key, str(path))
            found = Content.of_file(path)
            if str(found.stored.size) == headers.get("content-length") and found.may_have(headers):
                return True
        raise DestinationError(
            f"s3://{self.name}/{key} was read {READ_ATTEMPTS} times, and what came does not fit "
            "its size and ETag."
        )

    def replace(
        self, key: str, content: bytes, headers: Mapping[str, str], expected: str | None
    ) -> str:
        """Send an object if the ETag there is the expected one, or if there is none for None.

        Returns the new ETag; raises Superseded.
        """
        from botocore.exceptions import ClientError

        condition: _Condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        with self._explained(key, "written on a condition"):
            try:
                answer = self._client.put_object(
                    Bucket=self.name,
                    Key=key,
                    Body=content,
                    ContentMD5=b64encode(Content.of_bytes(content).md5).decode(),
                    ContentType=headers["Content-Type"],
                    CacheControl=headers["Cache-Control"],
                    **condition,
                )
                return answer["ETag"]
            except ClientError as error:
                refused = status_of(error) in (409, 412) or is_absence(error)
                if not refused:
                    raise
        found = self.read(key)
        if found is not None and found.content == content:
            return found.version  # an earlier try was obeyed, and its answer was lost
        raise Superseded(
            f"s3://{self.name}/{key}: the ETag {found and found.version} was found, "
            f"{expected} was expected."
        )

    def put(self, key: str, content: Content, headers: Mapping[str, str]) -> Stored:
        """Send an object and check what the server says of it; return how it will be listed.

        `headers` are Content-Type, Cache-Control and x-amz-meta-*.
        """
        send = self._put_whole if content.stored.size <= LARGEST_SINGLE else self._put_parts
        for _ in range(PUT_ATTEMPTS):
            with self._explained(key, "written"):
                answer = send(key, content, headers)
            etag = etag_of(answer)
            if etag and content.may_have(answer):
                return Stored(content.stored.size, etag)
        raise DestinationError(
            f"s3://{self.name}/{key}: the ETag {etag!r} was found after it was sent, "
            f"{content.stored.etag!r} was expected."
        )

    def _put_whole(
        self, key: str, content: Content, headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        md5 = b64encode(content.md5).decode()
        return self._requests.send("PUT", key, {**headers, "Content-MD5": md5}, content)

    def _put_parts(
        self, key: str, content: Content, headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        from boto3.s3.transfer import TransferConfig

        transfer = TransferConfig(
            multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=PARTS_AT_ONCE
        )
        extra = {"ContentType": headers["Content-Type"], "CacheControl": headers["Cache-Control"]}
        self._client.upload_file(
            str(content.source), self.name, key, ExtraArgs=extra, Config=transfer
        )
        return self.head(key) or {}

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error."""
        for start in range(0, len(keys), BATCH):
            self._delete_batch(keys[start : start + BATCH])

    def _delete_batch(self, keys: Sequence[str]) -> None:
        left: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys]
        for _ in range(DELETE_ATTEMPTS):
            with self._explained(keys[0], "deleted"):
                answer = self._client.delete_objects(
                    Bucket=self.name, Delete={"Objects": left, "Quiet": True}
                )
            errors = answer.get("Errors", [])
            left = [{"Key": error["Key"]} for error in errors if "Key" in error]
            if not errors:
                return
        raise DestinationError(
            f"s3://{self.name}/{errors[0].get('Key', '')} and {len(errors) - 1} others cannot be "
            f"deleted: the server answered {errors[0].get('Code', 'an error')}."
        )

    def _explained(self, key: str, done: str) -> AbstractContextManager[None]:
        return explained(f"s3://{self.name}/{key} cannot be {done}")


def bucket(name: str, options: S3Options) -> Bucket:
    """The bucket, with connections that this process keeps open."""
    return _bucket(name, options, os.getpid())


@cache
def _bucket(name: str, options: S3Options, _process: int) -> Bucket:
    return Bucket(name, options)
