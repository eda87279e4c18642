"""A bucket's objects: listed, read and sent with their content checked, removed."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from .destination import DestinationError, Document, Superseded
from .s3_client import S3Options, explained, is_absence, new_client, status_of
from .s3_requests import ObjectRequests

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef


class _Condition(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


LARGEST_SINGLE: Final = 1 << 30
"""Bytes of an object that one request sends; a larger one goes in parts."""

PART: Final = 64 << 20
PARTS_AT_ONCE: Final = 8
BATCH: Final = 1000  # keys that S3 deletes in one request
DELETE_ATTEMPTS: Final = 3
PUT_ATTEMPTS: Final = 2
READ_ATTEMPTS: Final = 4
MAPPED: Final = 1 << 20  # bytes from which on a file is mapped, not read

MD5_ETAG: Final = re.compile(r"[0-9a-f]{32}(-\d+)?")


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as S3 lists it; the ETag is without its quotes."""

    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Content:
    """What an object shall hold, and the ETag that S3 gives it when it does not encrypt by KMS."""

    view: memoryview
    etag: str
    md5: bytes
    path: Path | None = None

    @classmethod
    def of_bytes(cls, content: bytes | memoryview, path: Path | None = None) -> Content:
        """Of bytes that are at hand."""
        view = memoryview(content)
        if len(view) <= LARGEST_SINGLE:
            digest = hashlib.md5(view, usedforsecurity=False)
            return cls(view, digest.hexdigest(), digest.digest(), path)
        parts = [
            hashlib.md5(view[start : start + PART], usedforsecurity=False).digest()
            for start in range(0, len(view), PART)
        ]
        whole = hashlib.md5(b"".join(parts), usedforsecurity=False)
        return cls(view, f"{whole.hexdigest()}-{len(parts)}", whole.digest(), path)

    @classmethod
    def of_file(cls, path: Path) -> Content:
        """Of a file, which must not change while this is in use."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < MAPPED:
                return cls.of_bytes(file.read(), path)
            return cls.of_bytes(memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)), path)

    def may_have(self, headers: Mapping[str, str]) -> bool:
        """Whether an object with these headers may hold this: no, when its ETag is another MD5."""
        etag = headers.get("etag", "").strip('"')
        has_md5 = MD5_ETAG.fullmatch(etag) is not None
        if not has_md5 or "kms" in headers.get("x-amz-server-side-encryption", ""):
            return True
        same_parts = etag.partition("-")[2] == self.etag.partition("-")[2]
        return etag == self.etag or not same_parts

    @property
    def stored(self) -> Stored:
        """How S3 lists it."""
        return Stored(len(self.view), self.etag)


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
                return self._requests.send("HEAD", key, {}).headers
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
            if str(len(found.view)) == headers.get("content-length") and found.may_have(headers):
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
        send = self._put_whole if len(content.view) <= LARGEST_SINGLE else self._put_parts
        for _ in range(PUT_ATTEMPTS):
            with self._explained(key, "written"):
                answer = send(key, content, headers)
            etag = answer.get("etag", "").strip('"')
            if etag and content.may_have(answer):
                return Stored(len(content.view), etag)
        raise DestinationError(
            f"s3://{self.name}/{key}: the ETag {etag!r} was found after it was sent, "
            f"{content.etag!r} was expected."
        )

    def _put_whole(
        self, key: str, content: Content, headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        md5 = b64encode(content.md5).decode()
        return self._requests.send(
            "PUT", key, {**headers, "Content-MD5": md5}, content.view
        ).headers

    def _put_parts(
        self, key: str, content: Content, headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        from boto3.s3.transfer import TransferConfig

        transfer = TransferConfig(
            multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=PARTS_AT_ONCE
        )
        extra = {"ContentType": headers["Content-Type"], "CacheControl": headers["Cache-Control"]}
        self._client.upload_file(
            str(content.path), self.name, key, ExtraArgs=extra, Config=transfer
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
