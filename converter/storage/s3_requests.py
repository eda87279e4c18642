"""Signed requests for single objects of a bucket, many at once.

A store is thousands of small objects, and a method of a boto3 client costs three times the
processor time of this. The signature, the connections and the errors are botocore's.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from contextlib import nullcontext
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from .s3_client import CONNECTIONS, S3Options, code_of, status_of
from .s3_content import Body, Content

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.exceptions import ClientError
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

TRANSIENT_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
TRANSIENT_CODES: Final = frozenset({"BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown"})
LONGEST_PAUSE: Final = 20.0  # seconds
NO_DELAY: Final = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small bodies wait 40 ms


class ObjectRequests:
    """One bucket's objects, by key. Raises what boto3 raises: ClientError and BotoCoreError."""

    def __init__(self, bucket: str, session: Session, client: S3Client, options: S3Options) -> None:
        from botocore.exceptions import NoCredentialsError
        from botocore.httpsession import URLLib3Session
        from botocore.utils import get_environ_proxies

        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        self._credentials = credentials
        # The client knows where the bucket is, by the rules of the endpoint.
        address = client.generate_presigned_url(
            "head_object", Params={"Bucket": bucket, "Key": "k"}
        )
        self._base = address.partition("?")[0].removesuffix("k")
        self._region = client.meta.region_name
        self._attempts = options.attempts
        connections: dict[str, Any] = {
            "verify": session.get_config_variable("ca_bundle") or True,
            "proxies": get_environ_proxies(self._base),
            "timeout": (options.connect_timeout, options.read_timeout),
            "max_pool_connections": CONNECTIONS,
            "socket_options": [NO_DELAY],
        }
        self._http = URLLib3Session(**connections)

    def send(
        self, method: str, key: str, headers: Mapping[str, str], content: Content | None = None
    ) -> Mapping[str, str]:
        """Send a request, several times where that may help.

        Returns the answer's headers, by name in lower case.
        """
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        for attempt in range(1, self._attempts):
            try:
                return self._send_once(method, key, headers, content)
            except ClientError as error:
                if not _is_transient(error):
                    raise
            except (ConnectionError, HTTPClientError):
                pass
            time.sleep(SystemRandom().uniform(0, min(2.0 ** (attempt - 1), LONGEST_PAUSE)))
        return self._send_once(method, key, headers, content)

    def _send_once(
        self, method: str, key: str, headers: Mapping[str, str], content: Content | None
    ) -> Mapping[str, str]:
        from botocore.exceptions import ClientError

        with nullcontext(b"") if content is None else content.open() as body:
            request = self._signed(method, key, headers, body)
            response = self._http.send(request)
        if response.status_code // 100 == 2:
            return {name.lower(): value for name, value in response.headers.items()}
        found = re.search(rb"<Code>(\w+)</Code>", response.content)
        code = found[1].decode() if found else str(response.status_code)
        described: Any = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": response.status_code},
        }
        raise ClientError(described, method)

    def _signed(
        self, method: str, key: str, headers: Mapping[str, str], body: Body | bytes
    ) -> AWSPreparedRequest:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        url = self._base + quote(key, safe="/~")
        request = AWSRequest(method=method, url=url, headers=headers, data=body)
        request.context["has_streaming_input"] = True  # TLS and Content-MD5 suffice, where given
        credentials = self._credentials.get_frozen_credentials()
        S3SigV4Auth(credentials, "s3", self._region).add_auth(request)
        return request.prepare()


def _is_transient(error: ClientError) -> bool:
    return status_of(error) in TRANSIENT_STATUSES or code_of(error) in TRANSIENT_CODES
