from __future__ import annotations

import pytest

from converter.storage.hosts import HostGuard, RefusedAddress, is_public


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("52.216.8.1", True),
        ("2600:1f18::1", True),
        *((each, False) for each in ("127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1")),
        *((each, False) for each in ("169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1")),
        *((each, False) for each in ("::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff0e::1")),
        *((each, False) for each in ("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::")),
        ("240.0.0.1", False),
        ("64:ff9b::34d8:801", True),
        ("no address", False),
    ],
)
def test_only_hosts_of_the_public_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_trusted_host_is_so_on_all_ports_or_on_one() -> None:
    guard = HostGuard(frozenset({"minio.lab", "10.0.0.5:9000", "[::1]:80"}))
    assert guard.is_trusted("MinIO.lab.", 1)
    assert guard.is_trusted("10.0.0.5", 9000)
    assert guard.is_trusted("::1", 80)
    assert not guard.is_trusted("10.0.0.5", 80)
    assert not guard.is_trusted("10.0.0.50", 9000)
    guard.check_url("http://10.0.0.5:9000/a")
    guard.check_peer("minio.lab", 80, "192.168.1.1")
    with pytest.raises(RefusedAddress, match=r"^10\.0\.0\.5:80 is not public, nor a trusted host"):
        guard.check_url("http://10.0.0.5/a?secret")
    with pytest.raises(RefusedAddress, match=r"rebound\.org:443 is at 127\.0\.0\.1, which"):
        guard.check_peer("rebound.org", 443, "127.0.0.1")


@pytest.mark.parametrize(
    "url",
    ["ftp://a.org/x", "file:///etc/passwd", "http:///x", "x", "", "http://[::", "http://a:b/"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(RefusedAddress):
        HostGuard().check_url(url)


def test_https_does_not_lead_to_http() -> None:
    HostGuard().check_url("http://a.org/", "http://b.org/")
    HostGuard().check_url("https://a.org/", "http://b.org/")
    with pytest.raises(RefusedAddress, match="redirect from https to http"):
        HostGuard().check_url("http://a.org/", "https://b.org/")


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://s3.amazonaws.com/b/k", True),
        ("https://my.bucket.s3.eu-west-1.amazonaws.com/k", True),
        ("https://b.s3-us-west-2.amazonaws.com/k", True),
        ("https://s3.cn-north-1.amazonaws.com.cn/b/k", True),
        ("http://s3.amazonaws.com/b/k", False),
        ("https://abc.execute-api.us-east-1.amazonaws.com/s3.amazonaws.com", False),
        ("https://ec2-1-2-3-4.compute-1.amazonaws.com/", False),
        ("https://s3.amazonaws.com.evil.org/", False),
        ("https://evils3.amazonaws.com/", False),
        ("https://s3.amazonaws.com@evil.org/", False),
        ("http://minio.lab:9000/b/k", True),
        ("http://minio.lab/b/k", False),
    ],
)
def test_who_may_see_a_signature(url: str, may: bool) -> None:
    assert HostGuard(frozenset({"minio.lab:9000"})).may_see_signatures(url) is may
