"""The lexicon of the demo corpus: nouns, adjectives and places, and the random choices of the grammar.

A noun's row reads like a dictionary: English, German nominative, genitive and plural with their articles. Every noun of
a class fits the same verbs and adjectives. Places are grouped by activity, so that no sentence drives to the kitchen.
Choices use `Random.random()` only, the one method with a guaranteed sequence per seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from random import Random
from typing import NamedTuple, TypeVar

from model.demo.inflection import Case, Gender, add_s, dative_plural


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective with its comparatives, if the grammar compares by it."""

    english: str
    german: str
    english_comparative: str = ""
    german_comparative: str = ""
    inflected_stem: str = ""
    """The stem of endings if it differs from the basic form: teuer, but `ein teures Auto`."""

    @property
    def stem(self) -> str:
        """The German form that takes endings."""
        return self.inflected_stem or self.german


OLD = Adjective("old", "alt", "older", "älter")
YOUNG = Adjective("young", "jung", "younger", "jünger")
BIG = Adjective("big", "groß", "bigger", "größer")
SMALL = Adjective("small", "klein", "smaller", "kleiner")
NEW = Adjective("new", "neu", "newer", "neuer")
BEAUTIFUL = Adjective("beautiful", "schön", "more beautiful", "schöner")
EXPENSIVE = Adjective("expensive", "teuer", "more expensive", "teurer", inflected_stem="teur")
CHEAP = Adjective("cheap", "billig", "cheaper", "billiger")
HEAVY = Adjective("heavy", "schwer", "heavier", "schwerer")
STRONG = Adjective("strong", "stark", "stronger", "stärker")
FAMOUS = Adjective("famous", "berühmt", "more famous", "berühmter")
CLEVER = Adjective("clever", "klug", "more clever", "klüger")
FRIENDLY = Adjective("friendly", "freundlich", "friendlier", "freundlicher")
RICH = Adjective("rich", "reich", "richer", "reicher")
FAST = Adjective("fast", "schnell", "faster", "schneller")
SLOW = Adjective("slow", "langsam", "slower", "langsamer")
QUIET = Adjective("quiet", "ruhig", "quieter", "ruhiger")
HAPPY = Adjective("happy", "glücklich", "happier", "glücklicher")
TIRED = Adjective("tired", "müde", inflected_stem="müd")
SICK = Adjective("sick", "krank")
HUNGRY = Adjective("hungry", "hungrig")
FRESH = Adjective("fresh", "frisch")
COLD = Adjective("cold", "kalt")
HOT = Adjective("hot", "heiß")
RED = Adjective("red", "rot")
BLUE = Adjective("blue", "blau")
GREEN = Adjective("green", "grün")
YELLOW = Adjective("yellow", "gelb")
WHITE = Adjective("white", "weiß")
BLACK = Adjective("black", "schwarz")
BROWN = Adjective("brown", "braun")

OF_PEOPLE = (OLD, YOUNG, STRONG, FAMOUS, CLEVER, FRIENDLY, RICH, HAPPY, TIRED, SICK, HUNGRY)
OF_CHILDREN = (SMALL, STRONG, CLEVER, FRIENDLY, HAPPY, TIRED, SICK, HUNGRY)
OF_RELATIVES = (OLD, YOUNG, CLEVER, FRIENDLY, RICH, HAPPY, TIRED, SICK)
OF_ANIMALS = (OLD, YOUNG, BIG, SMALL, STRONG, BEAUTIFUL, HUNGRY, TIRED, WHITE, BLACK, BROWN)
OF_THINGS = (OLD, NEW, BIG, SMALL, BEAUTIFUL, EXPENSIVE, CHEAP, HEAVY, RED, BLUE, GREEN, YELLOW, WHITE, BLACK)
OF_OPENINGS = (OLD, NEW, BIG, SMALL, HEAVY, RED, BLUE, GREEN)
OF_VEHICLES = (OLD, NEW, FAST, SLOW)
OF_TEXTS = (OLD, NEW, BEAUTIFUL, FAMOUS)
OF_FRUIT = (BIG, SMALL, FRESH, CHEAP, EXPENSIVE)
OF_MEALS = (FRESH, COLD, CHEAP, EXPENSIVE)
OF_DRINKS = (FRESH, COLD, HOT)
OF_PLACES = (OLD, NEW, BIG, SMALL, BEAUTIFUL, FAMOUS, QUIET)


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun of both languages; a noun without a plural is not counted."""

    english: str
    nominative: str
    genitive: str
    plural: str = ""
    english_plural: str = ""

    @property
    def gender(self) -> Gender:
        """The gender, from the nominative's article."""
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
    """The determiners that make sense with a noun."""

    COUNTED = auto()
    ROLE = auto()
    """A person without an owner: no `my woman`."""
    UNCOUNTED = auto()
    RELATIVE = auto()
    """A sister or friend: mostly with a possessive."""
    PARENT = auto()
    """A mother or father: with a possessive, and never in the plural."""


@dataclass(frozen=True, slots=True, eq=False)
class NounClass:
    """Nouns that fit the same verbs, with their adjectives and determiners."""

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
    OF_PEOPLE,
    Kind.ROLE,
)
CHILDREN = NounClass(
    (
        Noun("child", "das Kind", "des Kindes", "die Kinder", "children"),
        Noun("boy", "der Junge", "des Jungen", "die Jungen"),
        Noun("girl", "das Mädchen", "des Mädchens", "die Mädchen"),
    ),
    OF_CHILDREN,
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
    OF_RELATIVES,
    Kind.RELATIVE,
)
PARENTS = NounClass(
    (
        Noun("mother", "die Mutter", "der Mutter", "die Mütter"),
        Noun("father", "der Vater", "des Vaters", "die Väter"),
        Noun("grandmother", "die Großmutter", "der Großmutter", "die Großmütter"),
    ),
    OF_RELATIVES,
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
    OF_ANIMALS,
)

FRUIT = NounClass(
    (
        Noun("apple", "der Apfel", "des Apfels", "die Äpfel"),
        Noun("pear", "die Birne", "der Birne", "die Birnen"),
        Noun("tomato", "die Tomate", "der Tomate", "die Tomaten"),
        Noun("egg", "das Ei", "des Eis", "die Eier"),
        Noun("cake", "der Kuchen", "des Kuchens", "die Kuchen"),
    ),
    OF_FRUIT,
)
MEALS = NounClass(
    (
        Noun("bread", "das Brot", "des Brotes"),
        Noun("cheese", "der Käse", "des Käses"),
        Noun("soup", "die Suppe", "der Suppe"),
        Noun("meat", "das Fleisch", "des Fleisches"),
    ),
    OF_MEALS,
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
    OF_DRINKS,
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
    OF_THINGS,
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
    OF_TEXTS,
)
WRITINGS = TEXTS.only("book", "letter")

FURNITURE = NounClass(
    (
        Noun("table", "der Tisch", "des Tisches", "die Tische"),
        Noun("chair", "der Stuhl", "des Stuhles", "die Stühle"),
        Noun("bed", "das Bett", "des Bettes", "die Betten"),
        Noun("bench", "die Bank", "der Bank", "die Bänke"),
    ),
    OF_THINGS,
)
OPENINGS = NounClass(
    (
        Noun("door", "die Tür", "der Tür", "die Türen"),
        Noun("window", "das Fenster", "des Fensters", "die Fenster"),
        Noun("suitcase", "der Koffer", "des Koffers", "die Koffer"),
    ),
    OF_OPENINGS,
)
VEHICLES = NounClass(
    (
        Noun("train", "der Zug", "des Zuges", "die Züge"),
        Noun("bus", "der Bus", "des Busses", "die Busse"),
    ),
    OF_VEHICLES,
)


class Pair(NamedTuple):
    """A piece of text in both languages."""

    english: str
    german: str


NOTHING = Pair("", "")


def join(*parts: str) -> str:
    """Joins words by blanks and omits empty ones."""
    return " ".join(filter(None, parts))


def sentence(pair: Pair, mark: str = ".") -> Pair:
    """Adds a capital letter at the start and a mark at the end."""
    english, german = pair
    return Pair(f"{english[0].upper()}{english[1:]}{mark}", f"{german[0].upper()}{german[1:]}{mark}")


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place with the prepositions for being there; `to` is the German one for going there."""

    noun: Noun
    english: str
    german: str
    to: str

    @property
    def case_of_destination(self) -> Case:
        """The case of going there: dative after zu, accusative after a preposition that also marks a location."""
        return Case.DATIVE if self.to == "zu" else Case.ACCUSATIVE


@dataclass(frozen=True, slots=True, eq=False)
class City:
    """A city: in Wien, nach Wien, with neither determiner nor adjective."""

    english: str
    german: str


_GARDEN = Place(Noun("garden", "der Garten", "des Gartens", "die Gärten"), "in", "in", "in")
_PARK = Place(Noun("park", "der Park", "des Parks", "die Parks"), "in", "in", "in")
_FOREST = Place(Noun("forest", "der Wald", "des Waldes", "die Wälder"), "in", "in", "in")
_LAKE = Place(Noun("lake", "der See", "des Sees", "die Seen"), "at", "an", "zu")
_STATION = Place(Noun("station", "der Bahnhof", "des Bahnhofs", "die Bahnhöfe"), "at", "an", "zu")
_MARKET = Place(Noun("market", "der Markt", "des Marktes", "die Märkte"), "at", "auf", "zu")
_CITY = Place(Noun("city", "die Stadt", "der Stadt", "die Städte"), "in", "in", "in")
_KITCHEN = Place(Noun("kitchen", "die Küche", "der Küche", "die Küchen"), "in", "in", "in")
_SCHOOL = Place(Noun("school", "die Schule", "der Schule", "die Schulen"), "at", "in", "zu")
_VILLAGE = Place(Noun("village", "das Dorf", "des Dorfes", "die Dörfer"), "in", "in", "in")
_HOUSE = Place(Noun("house", "das Haus", "des Hauses", "die Häuser"), "in", "in", "in")
_MUSEUM = Place(Noun("museum", "das Museum", "des Museums", "die Museen"), "in", "in", "in")

CITIES = (
    City("Berlin", "Berlin"),
    City("Hamburg", "Hamburg"),
    City("Vienna", "Wien"),
    City("Munich", "München"),
    City("Cologne", "Köln"),
)

OUTDOORS = (_GARDEN, _PARK, _FOREST, _LAKE, _VILLAGE)
AT_HOME = (_HOUSE, _KITCHEN, _SCHOOL)
TRADING = (_MARKET, _MARKET, _CITY, _VILLAGE, *CITIES)
NEARBY = (_GARDEN, _PARK, _FOREST, _LAKE, _KITCHEN, _HOUSE, _SCHOOL, _MARKET)
FAR = (_CITY, _VILLAGE, _STATION, _LAKE, _MUSEUM, _MARKET, *CITIES)
ANYWHERE = (*OUTDOORS, *AT_HOME, _CITY, _MUSEUM, _STATION, _MARKET, *CITIES)

ADJECTIVES = OF_PLACES

SPOTS = (Pair("on", "auf"), Pair("under", "unter"), Pair("behind", "hinter"), Pair("next to", "neben"))
"""Prepositions of location at a piece of furniture; with a movement they take the accusative."""


T = TypeVar("T")


def spread(weights: Mapping[T, int]) -> tuple[T, ...]:
    """Lists options so that a uniform pick takes each in proportion to its weight."""
    return tuple(option for option, weight in weights.items() for _ in range(weight))


class Chance:
    """A source of random choices, reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        """Takes one of the options, each equally likely."""
        return options[int(self._random() * len(options))]

    def happens(self, probability: float) -> bool:
        """Returns True in the given share of calls."""
        return self._random() < probability
