"""Only public addresses are called; no form of IPv6 hides another address."""

import socket
from ipaddress import IPv4Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.callbacks.public_address import is_public, resolve_public
from dragoman.serve.errors import ForbiddenError

PUBLIC = "93.184.216.34"
LOCAL = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    *("192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "fc00::/7"),
    *("fe80::/10", "fec0::/10", "ff00::/8", "100::/64", "2001:db8::/32", "3fff::/20", "64:ff9b:1::/48", "::/96"),
    "168.63.129.16/32",
)
# Mapped, compatible, translated, NAT64, local NAT64, 6to4, Teredo.
FORMS = ("::ffff:{0}", "::{0}", "::ffff:0:{0}", "64:ff9b::{0}", "64:ff9b:1::{0}", "2002:{0}::", "2001::{0}")


@given(st.data(), st.sampled_from(LOCAL))
def test_no_address_of_a_special_network_is_public(data: st.DataObject, text: str) -> None:
    network = ip_network(text)
    assert not is_public(str(network[data.draw(st.integers(0, network.num_addresses - 1))]))


@given(st.ip_addresses(v=4) | st.just(IPv4Address(PUBLIC)), st.sampled_from(FORMS))
def test_no_ipv6_form_of_an_ipv4_address_is_public(address: IPv4Address, form: str) -> None:
    assert not is_public(form.format(f"{int(address) >> 16:x}:{int(address) & 0xFFFF:x}"))


@pytest.mark.anyio
@pytest.mark.parametrize("addresses", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::ffff:7f00:1"], ["fe80::1%lo"]])
async def test_a_host_with_one_local_address_is_refused(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (text, 443)) for text in addresses])
    with pytest.raises(ForbiddenError, match=r"'a\.test', expected a host with public addresses only"):
        await resolve_public("a.test", 443)
    addresses[:] = [PUBLIC, "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]
    assert await resolve_public("a.test", 443) == PUBLIC
