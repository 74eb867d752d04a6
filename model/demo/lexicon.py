"""The data of the demo grammar, read from `lexicon.yaml` and `sentences.yaml`, which explain all fields."""

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict

from dragoman.model.demo.text import Text


def _load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return data


_SENTENCES, DATA = _load("sentences.yaml"), _load("lexicon.yaml")


def weighted(options: str) -> list[str]:
    """Repeats each option by its weight: `the*2 a` becomes the, the, a. The name of a list stands for its options."""
    split = [option.partition("*") for option in _SENTENCES["lists"].get(options, options).split()]
    return [name for name, _, weight in split for _ in range(int(weight or 1))]


Weighted = Annotated[list[str], BeforeValidator(weighted)]


class Row(BaseModel):
    """A part of the data."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NounClass(Row):
    """Nouns that fit the same verbs and adjectives."""

    kind: Literal["counted", "role", "kin", "parent", "mass"] = "counted"
    adjectives: Weighted
    words: dict[str, str]

    @property
    def of_people(self) -> bool:
        """Whether a pronoun or a name can stand for the nouns."""
        return self.kind in ("role", "kin", "parent")


class Determiner(NamedTuple):
    """A determiner. `stem` is German; `known` means that the hearer can identify the object."""

    singular: str
    plural: str
    stem: str
    declension: Literal["article", "der_word", "ein_word", "none", "quantity"]
    known: bool


class VerbGroup(Row):
    """Verbs with the same complements."""

    words: dict[str, str]
    kind: str
    event: bool = False
    objects: Weighted = []
    dative: bool = False
    by: str = ""
    animals: bool = False
    goes: Weighted = []
    gives: bool = False


class Verb(NamedTuple):
    """A verb with its forms, as in the data."""

    group: VerbGroup
    english: str
    german: str


class Tense(Row):
    """A tense, or a modal verb in a tense."""

    operator: str
    rest: str
    plain: str = ""
    modal: str = ""
    times: str


class ClauseRule(Row):
    """The options of a clause."""

    subject: Weighted = []
    verbs: Weighted = []
    mood: str = ""
    affirmative: bool = False
    full: bool = False
    value: str = ""
    object: str = ""
    relative: bool = False


class Sentence(Row):
    """A sentence of one or two clauses."""

    text: Annotated[Text, BeforeValidator(Text.parse)]
    weight: int
    moods: Weighted = ["any"]
    a: ClauseRule = ClauseRule()
    b: ClauseRule = ClauseRule()


def _phrases(entries: dict[str, list[str]]) -> dict[str, list[Text]]:
    """Parses the phrases, and adds the numbers from 2 to 99 (twenty-one, einundzwanzig) and the days of a month."""
    phrases = {name: list(map(Text.parse, texts)) for name, texts in entries.items()}
    ones = [("one", "ein"), *(text.plain() for text in phrases["hour"][:8])]
    tens = [text.plain() for text in phrases["ten"]]
    compounds = [Text.parse(f"{ten}-{one} = {eins}und{zehn}") for ten, zehn in tens for one, eins in ones]
    number = 3 * (phrases["hour"] + phrases["teen"]) + phrases["ten"] + compounds
    return phrases | {"number": number, "day": [Text.parse(f"{day} = {day}.") for day in range(1, 29)]}


SENTENCES = [Sentence.model_validate(row) for row in _SENTENCES["sentences"] for _ in range(row["weight"])]
CLASSES = {name: NounClass.model_validate(row) for name, row in DATA["nouns"].items()}
DETERMINERS = {name: Determiner(*row) for name, row in DATA["determiners"].items()}
REFERENCES = {
    kind: {reading: weighted(names) for reading, names in readings.items()}
    for kind, readings in DATA["determiners_of"].items()
}
_GROUPS = [VerbGroup.model_validate(row) for row in DATA["verbs"]]
VERBS = {
    kind: [Verb(group, *words) for group in _GROUPS if group.kind == kind for words in group.words.items()]
    for kind in {group.kind: None for group in _GROUPS}
}
TENSES = {name: Tense.model_validate(row) for name, row in DATA["tenses"].items()}
MOODS = {name: weighted(tenses) for name, tenses in DATA["moods"].items()}
PHRASES = _phrases(DATA["phrases"])
