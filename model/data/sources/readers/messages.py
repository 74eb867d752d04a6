"""What a reader returns: the texts of one file by key. The same key in the file of another language is its translation.

Where the file has the English text of each translation, the key ends with it, after CONTEXT_END.
"""

Messages = dict[str, str]

CONTEXT_END = "\x04"


def english_of(key: str) -> str:
    """Returns the English text in a key."""
    return key.rpartition(CONTEXT_END)[2]
