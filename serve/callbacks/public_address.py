"""Which addresses the server may connect to for clients: public ones, and no IPv6 form that holds an IPv4 address."""

import socket
from ipaddress import ip_address, ip_network

from dragoman.serve.errors import ForbiddenError
from dragoman.serve.host.threads import CALLBACKS

# The registries of IANA for special purposes; `is_global` of older Pythons lacks some. 2001::/23 has Teredo, 2002::/16
# is 6to4. Mapped and compatible addresses and NAT64 (64:ff9b::/96, 64:ff9b:1::/48) are not in `_UNICAST`. Each machine
# in Azure reaches a service of Azure at 168.63.129.16.
_SPECIAL = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3
2001::/23 2001:db8::/32 2002::/16 3fff::/20
"""
_REFUSED = tuple(map(ip_network, _SPECIAL.split()))
_UNICAST = ip_network("2000::/3"), ip_network("0.0.0.0/0")


def is_public(text: str) -> bool:
    """Returns whether an IP address is public, unicast and in its plain form."""
    address = ip_address(text)
    unicast = any(address in network for network in _UNICAST)
    return unicast and address.is_global and not any(address in network for network in _REFUSED)


async def resolve_public(host: str, port: int) -> str:
    """Returns the first address of a host; raises ForbiddenError unless all are public, OSError if it has none."""
    found = await CALLBACKS.run(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in found]
    if not all(map(is_public, addresses)):
        raise ForbiddenError(f"callback: {host!a}, expected a host with public addresses only")
    return addresses[0]
