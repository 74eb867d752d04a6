"""A pair of texts, its languages, and who uses it."""

from dataclasses import dataclass
from typing import NamedTuple

MAX_LANGUAGE_CHARACTERS = 35


class Pair(NamedTuple):
    """The ISO 639-1 codes of two languages."""

    source_language: str
    target_language: str


class Entry(NamedTuple):
    """A text and its translation; `context`: where it occurs."""

    source: str
    target: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An entry that is similar to a text, with the name of its memory; `similarity`: from 0.7 to 1."""

    source: str
    target: str
    similarity: float
    memory: str


class Client(NamedTuple):
    """What a client may do.

    Attributes:
        account: id of its API key, empty for none; None: the operator, who changes what is shared.
        author: what counts as one client, a key or an address, and has a share of the store.
        approves: whether it may change shared memories, and approve corrections of these and of its own.
    """

    account: str | None
    author: str = ""
    approves: bool = False


OPERATOR = Client(None, approves=True)
