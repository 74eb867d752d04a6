"""The nouns of the demo corpus, in classes small enough that every noun of a class fits the same verbs.

Knows words only; noun_phrase.py puts them together with determiners and adjectives. A row reads like a dictionary:
English, German nominative, genitive and plural with their articles.
"""

from dataclasses import dataclass
from enum import IntEnum, auto

from model.demo import adjectives
from model.demo.adjectives import Adjective
from model.demo.inflection import Case, Gender, add_s, dative_plural


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun of both languages; a noun without a plural names something that is not counted."""

    english: str
    nominative: str
    genitive: str
    plural: str = ""
    english_plural: str = ""

    @property
    def gender(self) -> Gender:
        """The gender, told by the nominative's article."""
        return Gender(self.nominative.split()[0])

    def german_form(self, case: Case, *, plural: bool) -> str:
        """Returns one German form without article."""
        if plural:
            form = self.plural.split()[1]
            return dative_plural(form) if case is Case.DATIVE else form
        nominative, genitive = self.nominative.split()[1], self.genitive.split()[1]
        # A weak masculine has one form for all cases but the nominative: der Junge, den, dem, des Jungen.
        weak = self.gender is Gender.MASCULINE and genitive.endswith("n")
        return genitive if case is Case.GENITIVE or (weak and case is not Case.NOMINATIVE) else nominative

    def english_form(self, *, plural: bool) -> str:
        """Returns the English singular or plural."""
        return (self.english_plural or add_s(self.english)) if plural else self.english


class Kind(IntEnum):
    """Which determiners make sense with a noun."""

    COUNTED = auto()
    ROLE = auto()
    """A person who belongs to nobody: no `my woman`."""
    UNCOUNTED = auto()
    RELATIVE = auto()
    """Somebody's sister or friend: mostly with a possessive."""
    PARENT = auto()
    """Somebody's mother: with a possessive, and never in the plural."""


@dataclass(frozen=True, slots=True, eq=False)
class NounClass:
    """Nouns that fit the same verbs, with the adjectives and determiners that fit them all."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    kind: Kind = Kind.COUNTED

    @property
    def of_people(self) -> bool:
        """Whether a pronoun like `him` or a name can stand for these nouns."""
        return self.kind in (Kind.ROLE, Kind.RELATIVE, Kind.PARENT)

    def only(self, *english: str) -> "NounClass":
        """Returns a class of some of these nouns, in the given order."""
        by_english = {noun.english: noun for noun in self.nouns}
        return NounClass(tuple(by_english[name] for name in english), self.adjectives, self.kind)


ROLES = NounClass(
    (
        Noun("teacher", "der Lehrer", "des Lehrers", "die Lehrer"),
        Noun("doctor", "der Arzt", "des Arztes", "die Ärzte"),
        Noun("farmer", "der Bauer", "des Bauern", "die Bauern"),
        Noun("baker", "der Bäcker", "des Bäckers", "die Bäcker"),
        Noun("waitress", "die Kellnerin", "der Kellnerin", "die Kellnerinnen"),
        Noun("man", "der Mann", "des Mannes", "die Männer", "men"),
        Noun("woman", "die Frau", "der Frau", "die Frauen", "women"),
    ),
    adjectives.OF_PEOPLE,
    Kind.ROLE,
)
CHILDREN = NounClass(
    (
        Noun("child", "das Kind", "des Kindes", "die Kinder", "children"),
        Noun("boy", "der Junge", "des Jungen", "die Jungen"),
        Noun("girl", "das Mädchen", "des Mädchens", "die Mädchen"),
    ),
    adjectives.OF_CHILDREN,
    Kind.ROLE,
)
RELATIVES = NounClass(
    (
        Noun("sister", "die Schwester", "der Schwester", "die Schwestern"),
        Noun("brother", "der Bruder", "des Bruders", "die Brüder"),
        Noun("daughter", "die Tochter", "der Tochter", "die Töchter"),
        Noun("son", "der Sohn", "des Sohnes", "die Söhne"),
        Noun("aunt", "die Tante", "der Tante", "die Tanten"),
        Noun("uncle", "der Onkel", "des Onkels", "die Onkel"),
        Noun("friend", "der Freund", "des Freundes", "die Freunde"),
        Noun("neighbor", "der Nachbar", "des Nachbarn", "die Nachbarn"),
    ),
    adjectives.OF_RELATIVES,
    Kind.RELATIVE,
)
PARENTS = NounClass(
    (
        Noun("mother", "die Mutter", "der Mutter", "die Mütter"),
        Noun("father", "der Vater", "des Vaters", "die Väter"),
        Noun("grandmother", "die Großmutter", "der Großmutter", "die Großmütter"),
    ),
    adjectives.OF_RELATIVES,
    Kind.PARENT,
)
PEOPLE = (ROLES, ROLES, CHILDREN, RELATIVES, RELATIVES, PARENTS)

ANIMALS = NounClass(
    (
        Noun("dog", "der Hund", "des Hundes", "die Hunde"),
        Noun("cat", "die Katze", "der Katze", "die Katzen"),
        Noun("horse", "das Pferd", "des Pferdes", "die Pferde"),
        Noun("bird", "der Vogel", "des Vogels", "die Vögel"),
        Noun("mouse", "die Maus", "der Maus", "die Mäuse", "mice"),
        Noun("cow", "die Kuh", "der Kuh", "die Kühe"),
        Noun("bear", "der Bär", "des Bären", "die Bären"),
    ),
    adjectives.OF_ANIMALS,
)

FRUIT = NounClass(
    (
        Noun("apple", "der Apfel", "des Apfels", "die Äpfel"),
        Noun("pear", "die Birne", "der Birne", "die Birnen"),
        Noun("tomato", "die Tomate", "der Tomate", "die Tomaten"),
        Noun("egg", "das Ei", "des Eis", "die Eier"),
        Noun("cake", "der Kuchen", "des Kuchens", "die Kuchen"),
    ),
    adjectives.OF_FRUIT,
)
MEALS = NounClass(
    (
        Noun("bread", "das Brot", "des Brotes"),
        Noun("cheese", "der Käse", "des Käses"),
        Noun("soup", "die Suppe", "der Suppe"),
        Noun("meat", "das Fleisch", "des Fleisches"),
    ),
    adjectives.OF_MEALS,
    Kind.UNCOUNTED,
)
DRINKS = NounClass(
    (
        Noun("water", "das Wasser", "des Wassers"),
        Noun("milk", "die Milch", "der Milch"),
        Noun("coffee", "der Kaffee", "des Kaffees"),
        Noun("tea", "der Tee", "des Tees"),
        Noun("juice", "der Saft", "des Saftes"),
    ),
    adjectives.OF_DRINKS,
    Kind.UNCOUNTED,
)

THINGS = NounClass(
    (
        Noun("key", "der Schlüssel", "des Schlüssels", "die Schlüssel"),
        Noun("hat", "der Hut", "des Hutes", "die Hüte"),
        Noun("coat", "der Mantel", "des Mantels", "die Mäntel"),
        Noun("ball", "der Ball", "des Balles", "die Bälle"),
        Noun("bag", "die Tasche", "der Tasche", "die Taschen"),
        Noun("lamp", "die Lampe", "der Lampe", "die Lampen"),
        Noun("clock", "die Uhr", "der Uhr", "die Uhren"),
        Noun("cup", "die Tasse", "der Tasse", "die Tassen"),
        Noun("bottle", "die Flasche", "der Flasche", "die Flaschen"),
        Noun("flower", "die Blume", "der Blume", "die Blumen"),
        Noun("shirt", "das Hemd", "des Hemdes", "die Hemden"),
        Noun("dress", "das Kleid", "des Kleides", "die Kleider"),
        Noun("knife", "das Messer", "des Messers", "die Messer", "knives"),
        Noun("picture", "das Bild", "des Bildes", "die Bilder"),
        Noun("bicycle", "das Fahrrad", "des Fahrrades", "die Fahrräder"),
        Noun("car", "das Auto", "des Autos", "die Autos"),
    ),
    adjectives.OF_THINGS,
)
CLOTHES = THINGS.only("hat", "coat", "shirt", "dress")
FLAT_THINGS = THINGS.only("key", "hat", "shirt", "dress", "knife", "picture")
PORTABLE_THINGS = THINGS.only("key", "hat", "coat", "ball", "bag", "lamp", "cup", "bottle", "flower", "knife")

TEXTS = NounClass(
    (
        Noun("book", "das Buch", "des Buches", "die Bücher"),
        Noun("letter", "der Brief", "des Briefes", "die Briefe"),
        Noun("newspaper", "die Zeitung", "der Zeitung", "die Zeitungen"),
    ),
    adjectives.OF_TEXTS,
)
WRITINGS = TEXTS.only("book", "letter")

FURNITURE = NounClass(
    (
        Noun("table", "der Tisch", "des Tisches", "die Tische"),
        Noun("chair", "der Stuhl", "des Stuhles", "die Stühle"),
        Noun("bed", "das Bett", "des Bettes", "die Betten"),
        Noun("bench", "die Bank", "der Bank", "die Bänke"),
    ),
    adjectives.OF_THINGS,
)
OPENINGS = NounClass(
    (
        Noun("door", "die Tür", "der Tür", "die Türen"),
        Noun("window", "das Fenster", "des Fensters", "die Fenster"),
        Noun("suitcase", "der Koffer", "des Koffers", "die Koffer"),
    ),
    adjectives.OF_OPENINGS,
)
VEHICLES = NounClass(
    (
        Noun("train", "der Zug", "des Zuges", "die Züge"),
        Noun("bus", "der Bus", "des Busses", "die Busse"),
    ),
    adjectives.OF_VEHICLES,
)
