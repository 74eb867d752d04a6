"""What a client asks for before anybody looked whether it can be had: the fields of a request, of whatever protocol.

Both interfaces and `dragoman translate` fill these records; `serve.registry.dispatcher` turns them into valid requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from serve.translation.flow import Flow
from serve.translation.search_fields import SearchFields


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDirection:
    """Who is to translate from what into what.

    Attributes:
        model: name of the model; empty: the first that has the direction.
        source_language, target_language: ISO 639-1 codes; either may be empty where it is clear.
        allow_pivot: whether to go by way of a third language where there is no direction.
    """

    model: str = ""
    source_language: str = ""
    target_language: str = ""
    allow_pivot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTranslation:
    """A request for translations.

    Attributes:
        texts: what to translate.
        direction: from what into what.
        options: how translations are searched for.
        target_prefix: what each translation starts with.
        split_sentences: whether a text is translated sentence by sentence; if not, it is taken for one.
        deadline_seconds: when the client stops waiting, on the clock of `time.monotonic`; None: it did not say.
        priority: what waits with a lower one starts later.
        flow: the stream that it is part of, and then it waits where it would be refused for want of room; None: it
            stands alone.
    """

    texts: Sequence[str]
    direction: AskedDirection = field(default=AskedDirection())
    options: SearchFields = field(default=SearchFields())
    target_prefix: Sequence[str] = ()
    split_sentences: bool = True
    deadline_seconds: float | None = None
    priority: int = 0
    flow: Flow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedScore:
    """A request for scores.

    Attributes:
        pairs: texts and their translations.
        direction: from what into what; there is no pivot.
        deadline_seconds: as of a request for translations.
    """

    pairs: Sequence[tuple[str, str]]
    direction: AskedDirection = field(default=AskedDirection())
    deadline_seconds: float | None = None
