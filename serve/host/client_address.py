"""Addresses of clients: of sockets, as gRPC writes them, and what counts as one client."""

import ipaddress
from functools import lru_cache
from urllib.parse import quote, unquote

# An owner of IPv6 addresses has at least a network of this size.
IPV6_PREFIX = 64
# The clients of a moment.
KNOWN = 1024

# Host and port; with IPv6, also flow and scope.
SocketAddress = tuple[str, int] | tuple[str, int, int, int]


@lru_cache(KNOWN)
def network_of(host: str) -> str:
    """Returns what counts as one client: an IPv4 address, or the network of an IPv6 address."""
    if ":" not in host:
        return host
    parsed = ipaddress.IPv6Address(host.partition("%")[0])
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed), IPV6_PREFIX), strict=False))


def peer_of(address: SocketAddress) -> str:
    """Returns the address of a socket as gRPC writes it."""
    host, port, *flow_and_scope = address
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    mapped = host.removeprefix("::ffff:")
    if mapped != host and "." in mapped:
        return f"ipv4:{mapped}:{port}"
    scope = flow_and_scope[-1]  # the interface of an address that is valid on one link
    return f"ipv6:{quote(f'[{host}%{scope}]' if scope else f'[{host}]', safe=':')}:{port}"


def host_of(peer: str) -> str:
    """Returns the host of an address that gRPC has written."""
    host_and_port = peer.partition(":")[2]
    return unquote(host_and_port.rpartition(":")[0]).strip("[]")
