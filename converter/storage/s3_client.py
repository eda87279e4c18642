"""A boto3 client with this project's settings, and its errors as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .destination import DestinationError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

CONNECTIONS: Final = 32

EXPIRED: Final = "the credentials have expired"
INVALID: Final = "the credentials are not valid"
ELSEWHERE: Final = "the bucket lies in another region than the one that is set"
NOT_SUPPORTED: Final = "the endpoint does not support what was asked of it"
DENIED: Final = (
    "access is denied, which is also said of an object that is not there to those who may not "
    "list the bucket"
)

MEANINGS: Final = {
    "ExpiredToken": EXPIRED,
    "ExpiredTokenException": EXPIRED,
    "RequestExpired": EXPIRED,
    "TokenRefreshRequired": EXPIRED,
    "InvalidAccessKeyId": INVALID,
    "InvalidToken": INVALID,
    "SignatureDoesNotMatch": INVALID,
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "NoSuchBucket": "the bucket does not exist",
    "NoSuchKey": "the object does not exist",
    "AccessDenied": DENIED,
    "PermanentRedirect": ELSEWHERE,
    "AuthorizationHeaderMalformed": ELSEWHERE,
    "IllegalLocationConstraintException": ELSEWHERE,
    "NotImplemented": NOT_SUPPORTED,
    "301": ELSEWHERE,
    "403": DENIED,
    "404": "the object does not exist",
    "501": NOT_SUPPORTED,
}
"""What an error code of S3 says; an answer without a body has its HTTP status as its code."""


@dataclass(frozen=True, slots=True)
class S3Options:
    """How a bucket is reached.

    Credentials, and what is None here, come from where AWS's own programs take them. The
    timeouts are seconds without a byte; a request is tried `attempts` times.
    """

    endpoint_url: str | None = None
    region: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    attempts: int = 7


def new_client(session: Session, options: S3Options) -> S3Client:
    """A client, for many threads at once; an endpoint of one's own has path-style addresses."""
    import boto3
    from botocore.config import Config

    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": _addressing(session, options)},
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        retries={"mode": "standard", "total_max_attempts": options.attempts},
        max_pool_connections=CONNECTIONS,
        # Content-MD5 and the ETag check the content, at every server.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=options.endpoint_url,
        region_name=options.region or session.get_config_variable("region") or "us-east-1",
        config=config,
    )


def _addressing(session: Session, options: S3Options) -> Any:
    """Virtual hosts, unless the endpoint is one's own or AWS's configuration says otherwise."""
    configured: Any = session.get_scoped_config().get("s3") or {}
    return "path" if options.endpoint_url else configured.get("addressing_style", "virtual")


def status_of(error: ClientError) -> int:
    """The HTTP status of the answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """S3's code of the error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_absence(error: ClientError) -> bool:
    """Whether the answer says that the object, in a bucket that is there, does not exist."""
    return status_of(error) == 404 and code_of(error) in ("NoSuchKey", "404", "NotFound")


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what boto3 raises into DestinationError: `what`, then what was found.

    Nothing of a request gets into the sentence, which holds signatures and tokens.
    """
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except DestinationError:
        raise
    except ClientError as error:
        raise DestinationError(f"{what}: {_answer(error)}.") from error
    except BotoCoreError as error:
        raise DestinationError(f"{what}: {_trouble(error)}.") from error
    except Boto3Error as error:
        cause = error.__context__
        found = _answer(cause) if isinstance(cause, ClientError) else "the transfer failed"
        raise DestinationError(f"{what}: {found}.") from error
    except OSError as error:
        raise DestinationError(f"{what}: {error.strerror or type(error).__name__}.") from error


def _answer(error: ClientError) -> str:
    code, status = code_of(error), status_of(error)
    meaning = MEANINGS.get(code) or MEANINGS.get(str(status))
    named = f"HTTP {status}" if code in ("", str(status)) else f"HTTP {status}, {code}"
    return f"{meaning} ({named})" if meaning else f"the server answered {named}"


def _trouble(error: Any) -> str:
    from botocore import exceptions as known

    if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError):
        return "no AWS credentials were found"
    if isinstance(error, known.ReadTimeoutError | known.ConnectTimeoutError):
        return "the server did not answer in time"
    if isinstance(error, known.EndpointConnectionError | known.ProxyConnectionError):
        return "the server cannot be reached"
    broken = known.ConnectionClosedError | known.ResponseStreamingError | known.IncompleteReadError
    if isinstance(error, broken):
        return "the connection broke"
    return f"boto3 stopped with {type(error).__name__}"
