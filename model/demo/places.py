"""Places: where something happens and where somebody goes, with the prepositions of both languages.

Knows words only; nominals.py puts the phrases together. Places are grouped by what one does there, so that nobody
drives to the kitchen.
"""

from dataclasses import dataclass

from model.demo import adjectives
from model.demo.inflection import Case
from model.demo.lexicon import Noun
from model.demo.pair import Pair


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place with the prepositions for being there; `to` is the German one for going there."""

    noun: Noun
    english: str
    german: str
    to: str

    @property
    def case_of_destination(self) -> Case:
        """The case of going there: dative after zu, accusative after a preposition that also says where."""
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

ADJECTIVES = adjectives.OF_PLACES

SPOTS = (Pair("on", "auf"), Pair("under", "unter"), Pair("behind", "hinter"), Pair("next to", "neben"))
"""Prepositions that say where at a piece of furniture; with a movement they take the accusative."""
