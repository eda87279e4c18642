"""Which hosts may be asked for content, and which of them may see a signature.

A dataset tells where its content lies and is not trusted: it must lead to no service of this
machine or its network, and to no foreign host that would be shown credentials.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

_PORTS = {"http": 80, "https": 443}
# Only these of Amazon's names are S3 itself; others lead to what its customers run.
_AMAZON_S3 = re.compile(r"(?:[a-z0-9.-]+\.)?s3[.-](?:[a-z0-9-]+\.)*amazonaws\.com(?:\.cn)?")
# Addresses that carry an IPv4 one in their last four bytes (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class RefusedAddress(Exception):
    """An address that no content may come from; the message says why, without a URL."""


@dataclass(frozen=True, slots=True)
class HostGuard:
    """The rules for hosts; `trusted` has the operator's own, as "host" or "host:port"."""

    trusted: frozenset[str] = frozenset()

    def check_url(self, url: str, came_from: str | None = None) -> SplitResult:
        """The URL's parts. Raises RefusedAddress for what is not to be asked.

        `came_from` is the URL that redirected to it: nobody leads from https to http.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise RefusedAddress("no URL that can be read") from None
        if parts.scheme not in _PORTS or not host:
            raise RefusedAddress("no http or https URL")
        if came_from is not None and came_from.startswith("https:") and parts.scheme == "http":
            raise RefusedAddress(f"a redirect from https to http, to {host}")
        self.check_literal(host, port or _PORTS[parts.scheme])
        return parts

    def check_literal(self, host: str, port: int) -> None:
        """Raise RefusedAddress where `host` is itself an address, and one to refuse."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return
        self.check_peer(host, port, host)

    def check_peer(self, host: str, port: int, address: str) -> None:
        """Raise RefusedAddress where `host` was found at an address that is not public."""
        if self.is_trusted(host, port) or is_public(address):
            return
        where = "" if host == address else f" is at {address}, which"
        raise RefusedAddress(f"{host}:{port}{where} is not public, nor a trusted host")

    def is_trusted(self, host: str, port: int) -> bool:
        """Whether the operator named the host, on any port or on this one."""
        name = host.lower().rstrip(".")
        named = f"[{name}]" if ":" in name else name
        return not self.trusted.isdisjoint({name, named, f"{named}:{port}"})

    def may_see_signatures(self, url: str) -> bool:
        """Whether a request to the URL may be signed: S3 at Amazon by https, trusted hosts."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if self.is_trusted(host, parts.port or _PORTS.get(parts.scheme, 0)):
            return True
        return parts.scheme == "https" and _AMAZON_S3.fullmatch(host) is not None


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet's hosts."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(found.packed[-4:])
        if found.teredo is not None:
            inner = found.teredo[1]
        if inner is not None:
            return is_public(str(inner))
        if found.is_site_local:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved)
