"""What a reader returns: the texts of one file by key. The same key in the file of another language is its translation.

Where the file has the English text of each translation, the key ends with it, after CONTEXT_END.
"""

from collections.abc import Iterable
from itertools import groupby

Messages = dict[str, str]

CONTEXT_END = "\x04"


def english_of(key: str) -> str:
    """Returns the English text in a key."""
    return key.rpartition(CONTEXT_END)[2]


def number_blocks(blocks: Iterable[tuple[object, str]]) -> Messages:
    """Returns the texts of adjacent blocks of a group by group, place in it, and size of the group.

    Groups with different numbers of blocks thus have no key in common.
    """
    messages: Messages = {}
    for name, group in groupby(blocks, key=lambda block: block[0]):
        texts = [text for _, text in group]
        messages.update({f"{name}/{place}/{len(texts)}": text for place, text in enumerate(texts)})
    return messages
