"""How a client wants one text translated: the keyword arguments of every client's methods.

All clients have the same ones, over gRPC, over REST and in this process. Knows no protocol.
"""

from typing import Any, TypedDict

from serve.translation.search_fields import SearchFields


class Wanted(TypedDict, total=False):
    """What is absent is as in a request without it.

    Keys:
        source_language, target_language: ISO 639-1 codes; absent or empty: the model's.
        options: how translations are searched for; absent: greedily.
        model: name of the model; absent or empty: the first that has the direction.
        allow_pivot: whether to go by way of a third language where there is no direction; absent: no.
        split_sentences: whether to translate the text sentence by sentence; absent: yes.
    """

    source_language: str
    target_language: str
    options: SearchFields
    model: str
    allow_pivot: bool
    split_sentences: bool


def request_fields(text: str, wanted: Wanted) -> dict[str, Any]:
    """Returns the fields of a request for one text, as gRPC and REST name them; `options` is a dict of its own."""
    options = wanted.get("options", SearchFields())
    return {**wanted, "text": [text], "options": options.model_dump(exclude_defaults=True)}
