"""What may be reached, decided on names and numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config import REGISTRIES, PackageRule
from sandbox.egress.hosts import Allowlist, Place, climbs, is_literal, place

LIST = Allowlist(
    [
        "pypi.org",
        "*.golang.org",
        "mirror.corp:8443",
        "bücher.example",
        "10.1.2.3:80",
        "[fd00::5]:8080",
        "*.lan.corp:80",
    ],
    {"mirror.corp:8443": PackageRule(methods=("GET", "POST"), paths=("/simple/", "/api"))},
)


@pytest.mark.parametrize(
    ("scheme", "where"),
    [
        ("https", "pypi.org:443"),
        ("http", "pypi.org:80"),
        ("https", "PyPI.org:443"),
        ("https", "pypi.org.:443"),
        ("https", "proxy.golang.org:443"),
        ("https", "a.b.golang.org:443"),
        ("https", "mirror.corp:8443"),
        ("http", "mirror.corp:8443"),
        ("https", "xn--bcher-kva.example:443"),
        ("http", "10.1.2.3:80"),
        ("http", "[fd00::5]:8080"),
    ],
)
def test_what_is_listed_is_let_out(scheme: str, where: str) -> None:
    found = place(where, None)
    assert found
    assert LIST.refuses_place(found, scheme) is None


@pytest.mark.parametrize(
    ("scheme", "where"),
    [
        ("https", "pypi.org:80"),
        ("http", "pypi.org:443"),
        ("https", "pypi.org:8443"),
        ("https", "evilpypi.org:443"),
        ("https", "pypi.org.evil.example:443"),
        ("https", "files.pypi.org:443"),
        ("https", "golang.org:443"),
        ("https", "evilgolang.org:443"),
        ("https", "mirror.corp:443"),
        ("https", "bucher.example:443"),
        ("http", "10.1.2.4:80"),
        ("http", "167838211:80"),
        ("http", "[fd00::5]:80"),
    ],
)
def test_what_is_not_listed_is_not(scheme: str, where: str) -> None:
    found = place(where, None)
    assert found
    assert LIST.refuses_place(found, scheme)


@pytest.mark.parametrize(
    "authority",
    [
        *("", ":443", "a@pypi.org:443", "pypi.org:443@evil.example", "pypi%2eorg:443", "pypi.org:0", "pypi.org:65536"),
        *(
            "pypi.org:443:80",
            "pypi.org:-1",
            "pypi.org:٤٤٣",
            "pypi.org/x:443",
            "pypi.org\n:443",
            "pypi.org:443\n",
            " a:1",
        ),
        *(
            "-a:443",
            ".pypi.org:443",
            "pypi.org..:443",
            "[::1:443",
            "pypi\u3002org:443",
            "\uff50ypi.org:443",
            "\u212a.org:443",
            "pypi.org\0:443",
        ),
    ],
)
def test_what_names_no_place_is_none(authority: str) -> None:
    assert place(authority, None) is None


@given(st.text(max_size=40))
def test_a_place_is_read_in_one_way(text: str) -> None:
    found = place(text, 443)
    if found:
        assert place(str(found), None) == found
        assert not set(found.host) & set("@/\\%?# \t\r\n\0")


@pytest.mark.parametrize("host", ["1.2.3.4", "::1", "0x7f000001", "2130706433", "127.1", "a.0x1", "1.2.3.08"])
def test_addresses_in_any_spelling_are_known(host: str) -> None:
    assert is_literal(host)


@pytest.mark.parametrize("entry", ["", "*", "*.com", "a b", "http://pypi.org", "pypi.org/simple", "*.*.org", "a@b.c"])
def test_a_line_that_names_no_host_is_a_mistake(entry: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        Allowlist([entry], {})


def test_nothing_listed_lets_nothing_out() -> None:
    assert "no host at all" in (Allowlist([], {}).refuses_place(Place("pypi.org", 443), "https") or "")


def test_the_reason_tells_what_is_near() -> None:
    assert LIST.refuses_place(Place("pypi.org", 22), "https") == "pypi.org is listed, but not port 22 for https"
    assert (LIST.refuses_place(Place("1.1.1.1", 443), "https") or "").startswith("the address 1.1.1.1:443 is not")


@pytest.mark.parametrize(
    ("method", "target", "reason"),
    [
        ("GET", "/simple/demo/", None),
        ("POST", "/api", None),
        ("POST", "/api/audit?x=/../", None),
        ("GET", "/@scope%2fname", "path is not among"),
        ("GET", "/apis", "path is not among"),
        ("GET", "/simple", "path is not among"),
        ("HEAD", "/api", "HEAD is not among the methods listed for mirror.corp: GET, POST"),
        ("GET", "/api/../secret", "climbs"),
        ("GET", "/api/%2E%2e/secret", "climbs"),
        ("GET", "/api/%252e%252e/secret", "climbs"),
        ("GET", "/api/..%2fsecret", "climbs"),
        ("GET", "/api/..%5csecret", "climbs"),
        ("GET", "/api\\..\\secret", "climbs"),
    ],
)
def test_methods_and_paths_are_the_lines_own(method: str, target: str, reason: str | None) -> None:
    words = LIST.refuses_request(Place("mirror.corp", 8443), "https", method, target)
    assert (words is None) if reason is None else (reason in (words or ""))


def test_names_of_scopes_do_not_climb() -> None:
    assert not climbs("/@types%2fnode/-/node-1.0.tgz")
    assert not climbs("/simple/a..b/...")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.100.100.200", "0.0.0.1"),
        *("224.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.0.192", "198.18.0.1", "::1", "::", "fe80::1"),
        *("fe80::1%eth0", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe"),
        *("2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    for host in ("pypi.org", "proxy.golang.org"):
        assert "no public address" in (LIST.refuses_address(Place(host, 443), address) or "")


@pytest.mark.parametrize("address", ["151.101.0.223", "2a04:4e42::223", "::ffff:151.101.0.223", "64:ff9b::9765:df"])
def test_public_addresses_are_let_out(address: str) -> None:
    assert LIST.refuses_address(Place("pypi.org", 443), address) is None


def test_a_mirror_that_is_listed_with_its_port_may_be_private() -> None:
    mirror = Place("mirror.corp", 8443)
    for address in ("10.0.0.7", "127.0.0.1", "::1", "fd00::7", "100.64.0.9"):
        assert LIST.refuses_address(mirror, address) is None
    assert LIST.refuses_address(Place("mirror.corp", 443), "10.0.0.7")


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1",
        "224.0.0.1",
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "::",
        "::ffff:169.254.169.254",
    ],
)
def test_even_a_listed_mirror_is_not_where_clouds_keep_credentials(address: str) -> None:
    assert LIST.refuses_address(Place("mirror.corp", 8443), address)


def test_an_address_is_reached_only_where_it_is_listed_itself() -> None:
    metadata = Allowlist(["169.254.169.254:80"], {})
    assert metadata.refuses_address(Place("169.254.169.254", 80), "169.254.169.254") is None
    assert LIST.refuses_address(Place("10.1.2.3", 80), "10.1.2.3") is None
    assert LIST.refuses_address(Place("10.1.2.4", 80), "10.1.2.4")


def test_the_defaults_are_lines() -> None:
    listed = Allowlist(REGISTRIES, {})
    assert all(listed.refuses_place(Place(host, 443), "https") is None for host in REGISTRIES)
