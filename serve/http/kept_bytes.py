"""Bytes that the server keeps for its whole life, such as the files of the page.

Unread answers with them take no memory: the connections share one object.
"""


class KeptBytes(bytes):
    """Bytes that outlive every answer that has them as its body."""
