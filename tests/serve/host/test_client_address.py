"""Addresses of clients: of sockets, and as gRPC writes them."""

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman.serve.host.client_address import host_of, network_of, peer_of
from tests.support.cases import cases

CASES = cases(__file__)

PORTS = st.integers(1, 65535)


@given(st.ip_addresses(v=4), PORTS)
def test_the_host_of_an_ipv4_address_is_found(address: ipaddress.IPv4Address, port: int) -> None:
    peer = peer_of((str(address), port))
    assert peer == f"ipv4:{address}:{port}"
    assert network_of(host_of(peer)) == host_of(peer) == str(address)
    assert peer_of((f"::ffff:{address}", port, 0, 0)) == peer


@given(st.ip_addresses(v=6), PORTS, st.integers(0, 9))
def test_the_network_of_an_ipv6_address_is_found(address: ipaddress.IPv6Address, port: int, scope: int) -> None:
    """A scope is the number of an interface."""
    assume(address.ipv4_mapped is None)
    host = host_of(peer_of((str(address), port, 0, scope)))
    assert host == (f"{address}%{scope}" if scope else str(address))
    assert address in ipaddress.ip_network(network_of(host))


@pytest.mark.parametrize(("one", "other", "same"), CASES["addresses of one client are one"])
def test_addresses_of_one_client_are_one(one: str, other: str, *, same: bool) -> None:
    assert (network_of(one) == network_of(other)) == same
