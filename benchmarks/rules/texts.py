"""Texts with placeholders and terms, and messages of ICU from a grammar. All follow from a seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

# One per kind of the documentation, and two that end with letters.
PLACEHOLDERS = (
    "%d",
    "%1$s",
    "{name}",
    "{{count}}",
    "${user}",
    "%{total}",
    '<x id="1"/>',
    "https://a.example/b?c=1",
    "o'neil@example.com",
    "@kim",
)
SENTENCES = {
    "en": (
        "{} dog is playing.",
        "A man sees {} in the park.",
        "The children play with {}.",
        "{} women sit on a bench.",
        "A girl holds {} and smiles.",
        "Two boys run to {}.",
        "A red ball lies next to {}.",
        "The guest eats {} at the table.",
        "A cow stands behind {}.",
        "People wait for {} at the bus stop.",
        "{} is riding a bike.",
        "An old man reads {}.",
        "A woman in a blue shirt looks at {}.",
        "The team celebrates {} in the street.",
        "Three people stand near {}, talking.",
        "A boy throws {} into the water.",
        "A dog jumps over {}.",
        "The band plays {} on a stage.",
        "A child paints {} with a brush.",
        "A crowd watches {} at night.",
    ),
    "de": (
        "{} Hund spielt.",
        "Ein Mann sieht {} im Park.",
        "Die Kinder spielen mit {}.",
        "{} Frauen sitzen auf einer Bank.",
        "Ein Mädchen hält {} und lächelt.",
        "Zwei Jungen laufen zu {}.",
        "Ein roter Ball liegt neben {}.",
        "Der Gast isst {} am Tisch.",
        "Eine Kuh steht hinter {}.",
        "Leute warten an der Haltestelle auf {}.",
        "{} fährt Fahrrad.",
        "Ein alter Mann liest {}.",
        "Eine Frau in einem blauen Hemd schaut {} an.",
        "Die Mannschaft feiert {} auf der Straße.",
        "Drei Leute stehen bei {} und reden.",
        "Ein Junge wirft {} ins Wasser.",
        "Ein Hund springt über {}.",
        "Die Band spielt {} auf einer Bühne.",
        "Ein Kind malt {} mit einem Pinsel.",
        "Eine Menge sieht nachts {} zu.",
    ),
}
# A term of the source, and translations that the models do not choose by themselves.
TERMS = {
    "de": (
        ("cow", "Milchkuh"),
        ("dog", "Vierbeiner"),
        ("guest", "Besucher"),
        ("bus stop", "Omnibushalt"),
        ("ball", "Lederkugel"),
    ),
    "fr": (("cow", "laitière"), ("dog", "cabot"), ("guest", "convive"), ("bus stop", "abribus"), ("ball", "sphère")),
    "cs": (
        ("cow", "dojnice"),
        ("dog", "hafan"),
        ("guest", "návštěvník"),
        ("bus stop", "stanoviště"),
        ("ball", "míček"),
    ),
    "en": (
        ("Kuh", "heifer"),
        ("Hund", "hound"),
        ("Gast", "visitor"),
        ("Haltestelle", "bus station"),
        ("Ball", "sphere"),
    ),
}
TERM_SENTENCES = {
    "en": (
        "A {} stands in the grass.",
        "The {} is red.",
        "A man looks at the {}.",
        "A child runs to the {}.",
        "Two women wait near a {}.",
        "The {} and a boy are outside.",
        "A girl touches the {} with her hand.",
        "There is a {} on the street.",
        "The old {} is big.",
        "People photograph the {}.",
    ),
    "de": (
        "Ein {} steht im Gras.",
        "Der {} ist rot.",
        "Ein Mann schaut den {} an.",
        "Ein Kind läuft zum {}.",
        "Zwei Frauen warten bei einem {}.",
        "Der {} und ein Junge sind draußen.",
        "Ein Mädchen berührt den {} mit der Hand.",
        "Auf der Straße ist ein {}.",
        "Der alte {} ist groß.",
        "Leute fotografieren den {}.",
    ),
}
SHORT = (
    "{} is required",
    "{} boat waits",
    "{} new messages",
    "{} dogs",
    "Hello {}",
    "Hello {}!",
    "{}: red ball",
    "{} days left",
    "Page {}",
    "Delete {}?",
    "Welcome back, {}",
    "{} likes this",
    "Open {}",
    "by {}",
    "{} of the children",
    "New: {}",
    "Size ({})",
    "{} not found",
    "Run {} again",
    "No {} here.",
    "Save as {}",
    "{} minutes ago",
    "The man {}",
    "From {} to the park",
    "{} and a dog",
)
SHORT_PLACEHOLDERS = (
    *PLACEHOLDERS,
    "%s",
    "%(name)s",
    "{0}",
    "$t(menu.open)",
    "#news",
    "%@",
    "{{- x}}",
    "$name",
    "/usr/bin",
    "%n",
)

_NOUNS = ("dog", "boy", "red ball", "woman", "boat", "child in the park", "old man", "bike")
_CLAUSES = ("plays with a ball", "is waiting", "runs on the beach", "sits on a bench", "likes {name}", "sees {0} here")
_PLURALS = ("one", "other"), ("=0", "one", "other"), ("one", "few", "many", "other"), ("=1", "other")


@dataclass(frozen=True, slots=True)
class Case:
    """A text to translate.

    Attributes:
        kept: what the translation must contain, as often: its placeholder, or the translation of its term.
        term: source and translation of a term; None: the text has a placeholder.
    """

    text: str
    kept: str
    term: tuple[str, str] | None = None


def bounded_cases(source: str, target: str) -> list[Case]:
    """Returns 250 sentences with a placeholder or a term."""
    pairs = product(PLACEHOLDERS, SENTENCES[source])
    cases = [Case(sentence.format(placeholder), placeholder) for placeholder, sentence in pairs]
    terms = product(TERMS[target], TERM_SENTENCES[source])
    return [*cases, *(Case(sentence.format(term[0]), term[1], term) for term, sentence in terms)]


def short_texts() -> list[Case]:
    """Returns 500 short texts with one placeholder and words."""
    return [Case(text.format(placeholder), placeholder) for text, placeholder in product(SHORT, SHORT_PLACEHOLDERS)]


class MessageGrammar:
    """Draws messages of ICU."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def messages(self, count: int) -> Iterator[str]:
        """Yields distinct messages."""
        drawn = set[str]()
        while len(drawn) < count:
            message = self._message()
            if message not in drawn:
                drawn.add(message)
                yield message

    def _message(self) -> str:
        argument = self._argument(2)
        return self._random.choice(
            ("{}", "The {} runs.", "{} in the park", "We saw {}, and it''s late.", "{} here")
        ).format(argument)

    def _argument(self, levels: int) -> str:
        kind = self._random.choice(("plural", "plural", "select", "selectordinal"))
        if kind == "select":
            branches = (f"{name} {{{self._text(levels)}}}" for name in ("male", "female", "other"))
            return f"{{gender, select, {' '.join(branches)}}}"
        offset = self._random.choice(("", "", " offset:1")) if kind == "plural" else ""
        ordinals = {"one": "#st ", "two": "#nd ", "few": "#rd ", "other": "#th "}
        names = ("one", "two", "few", "other") if kind == "selectordinal" else self._random.choice(_PLURALS)
        number = ordinals.get if kind == "selectordinal" else self._number
        branches = (f"{name} {{{number(name) or ''}{self._text(levels)}}}" for name in names)
        return f"{{count, {kind},{offset} {' '.join(branches)}}}"

    def _number(self, _: str) -> str:
        return self._random.choice(("# ", "# ", "# ", "<b>#</b> ", ""))

    def _text(self, levels: int) -> str:
        if levels and self._random.random() < 0.2:  # noqa: PLR2004 - the share of nested messages
            return f"a dog and {self._argument(levels - 1)}"
        noun, clause = self._random.choice(_NOUNS), self._random.choice((*_CLAUSES, "", ""))
        return f"{noun} {clause}".strip() + self._random.choice(("", "", "", ".", " '{'literal'}'", " o''clock"))
