"""The adjectives of the demo corpus, in groups that fit a class of nouns.

Knows words only; inflection.py knows the endings. Called by nouns.py, which gives every noun class its adjectives,
and by the grammar for sentences such as `The car is more expensive than the bicycle.`
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective with its comparatives, if sentences shall compare by it."""

    english: str
    german: str
    english_comparative: str = ""
    german_comparative: str = ""
    inflected_stem: str = ""
    """What endings attach to where it is not the basic form: teuer, but `ein teures Auto`."""

    @property
    def stem(self) -> str:
        """The German form that endings attach to."""
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
