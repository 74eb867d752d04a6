"""How much of a store one client may fill.

Of what other clients leave, a client has at most half: after it, others still find room. Its first item may take all
that is left, so that a small store serves a lone client too.
"""


def largest_share(limit: int, others: int, *, first: bool) -> int:
    """Returns how much of a store a client may fill.

    Args:
        others: what other clients have stored.
        first: whether the client has at most one item.
    """
    free = max(0, limit - others)
    return free if first else free // 2
