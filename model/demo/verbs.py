"""The verbs of the demo corpus, each with its complements.

A row reads like a dictionary: English base and past, German infinitive (a separable prefix marked by `|`), third person
without prefix, participle.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from model.demo.inflection import Case
from model.demo.lexicon import (
    ANIMALS,
    ANYWHERE,
    AT_HOME,
    CITIES,
    CLOTHES,
    DRINKS,
    FAR,
    FLAT_THINGS,
    FRUIT,
    FURNITURE,
    MEALS,
    NEARBY,
    OPENINGS,
    OUTDOORS,
    PEOPLE,
    ROLES,
    TEXTS,
    THINGS,
    TRADING,
    VEHICLES,
    WRITINGS,
    City,
    NounClass,
    Pair,
    Place,
)


class Aspect(Enum):
    """The tenses and adverbials that sound natural with a verb."""

    ACTION = auto()
    """An activity with duration: every tense."""
    EVENT = auto()
    """An event without duration, such as finding: no English progressive."""
    STATE = auto()
    """A state, such as knowing: no progressive, modal verb, time or place."""


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb of both languages."""

    english: str
    past: str
    german: str
    third: str
    participle: str
    auxiliary: str = "haben"
    aspect: Aspect = Aspect.ACTION
    first: str = ""
    """The ich form, where it is not the infinitive with -e for -en."""
    plural: str = ""
    """The wir and sie form, where it is not the infinitive."""
    preterite: str = ""
    """The ich form of the German simple past, for the few verbs that prefer it to the perfect."""
    objects: tuple[NounClass, ...] = ()
    case: Case = Case.ACCUSATIVE
    preposition: str = ""
    """The German preposition before the object; the English one belongs to `english`."""
    recipients: tuple[NounClass, ...] = ()
    """The possible recipients of the object, in the dative."""
    manners: tuple[Pair, ...] = ()
    """Adverbs of manner that fit."""
    places: tuple[Place | City, ...] = ANYWHERE
    """The places of the action."""
    destinations: tuple[Place | City, ...] = ()
    """The destinations of a movement: then it has no place."""
    serves: bool = False
    """Whether the action can have a beneficiary."""

    @property
    def prefix(self) -> str:
        """The separable prefix, or nothing."""
        return self.german.split("|")[0] if "|" in self.german else ""

    @property
    def infinitive(self) -> str:
        """The German infinitive in one word."""
        return self.german.replace("|", "")

    @property
    def takes_people(self) -> bool:
        """Whether a question about the object asks `who`; else it asks `what`."""
        return ROLES in self.objects


_EVENT, _STATE = Aspect.EVENT, Aspect.STATE
_ACCUSATIVE, _DATIVE = Case.ACCUSATIVE, Case.DATIVE
_SLOWLY, _QUICKLY = Pair("slowly", "langsam"), Pair("quickly", "schnell")
_LOUDLY, _QUIETLY = Pair("loudly", "laut"), Pair("quietly", "leise")
_BY_VEHICLE = (Pair("by train", "mit dem Zug"), Pair("by bus", "mit dem Bus"), Pair("by car", "mit dem Auto"))

BE = Verb("be", "was", "sein", "ist", "gewesen", "sein", _STATE, first="bin", plural="sind", preterite="war")
COST = Verb("cost", "cost", "kosten", "kostet", "gekostet", aspect=_STATE)
PUT = Verb("put", "put", "legen", "legt", "gelegt", objects=(FLAT_THINGS, TEXTS))
EXIST = Verb("be", "was", "geben", "gibt", "gegeben", aspect=_STATE, preterite="gab")
"""As in `There is milk`, es gibt Milch."""

_SLEEP = Verb("sleep", "slept", "schlafen", "schläft", "geschlafen")
_SIT = Verb("sit", "sat", "sitzen", "sitzt", "gesessen")
_PLAY = Verb("play", "played", "spielen", "spielt", "gespielt")
_RUN = Verb("run", "ran", "laufen", "läuft", "gelaufen", "sein", manners=(_SLOWLY, _QUICKLY), destinations=NEARBY)
_COME = Verb("come", "came", "kommen", "kommt", "gekommen", "sein", destinations=NEARBY)
_DRINK = Verb("drink", "drank", "trinken", "trinkt", "getrunken", objects=(DRINKS,))
_EAT = Verb("eat", "ate", "essen", "isst", "gegessen", objects=(FRUIT, MEALS))
_SEE = Verb(
    "see", "saw", "sehen", "sieht", "gesehen", aspect=_EVENT, objects=(*PEOPLE, ANIMALS, ANIMALS, ANIMALS, THINGS)
)
_FOLLOW = Verb(
    "follow", "followed", "folgen", "folgt", "gefolgt", "sein", objects=PEOPLE, case=_DATIVE, places=OUTDOORS
)

ACTIVITIES = (
    _SLEEP,
    _SIT,
    _PLAY,
    Verb("work", "worked", "arbeiten", "arbeitet", "gearbeitet", manners=(_SLOWLY, _QUICKLY)),
    Verb("dance", "danced", "tanzen", "tanzt", "getanzt", manners=(_SLOWLY, _QUICKLY)),
    Verb("sing", "sang", "singen", "singt", "gesungen", manners=(_LOUDLY, _QUIETLY)),
    Verb("laugh", "laughed", "lachen", "lacht", "gelacht", manners=(_LOUDLY, _QUIETLY)),
    Verb("wait", "waited", "warten", "wartet", "gewartet"),
    Verb("stay", "stayed", "bleiben", "bleibt", "geblieben", "sein", _EVENT),
    Verb("arrive", "arrived", "an|kommen", "kommt", "angekommen", "sein", _EVENT, places=FAR),
    Verb("get up", "got up", "auf|stehen", "steht", "aufgestanden", "sein", _EVENT, places=AT_HOME),
    Verb("wake up", "woke up", "auf|wachen", "wacht", "aufgewacht", "sein", _EVENT, places=AT_HOME),
)
MOTIONS = (
    _RUN,
    _COME,
    Verb("go", "went", "gehen", "geht", "gegangen", "sein", destinations=NEARBY),
    Verb("travel", "traveled", "reisen", "reist", "gereist", "sein", manners=_BY_VEHICLE, destinations=FAR),
    Verb("drive", "drove", "fahren", "fährt", "gefahren", "sein", manners=(_SLOWLY, _QUICKLY), destinations=FAR),
    Verb(
        "return", "returned", "zurück|kehren", "kehrt", "zurückgekehrt", "sein", manners=_BY_VEHICLE, destinations=FAR
    ),
)
DEALINGS = (
    _SEE,
    _EAT,
    _DRINK,
    Verb(
        "buy",
        "bought",
        "kaufen",
        "kauft",
        "gekauft",
        objects=(THINGS, THINGS, TEXTS, FRUIT, MEALS, ANIMALS),
        serves=True,
        places=TRADING,
    ),
    Verb(
        "sell",
        "sold",
        "verkaufen",
        "verkauft",
        "verkauft",
        objects=(THINGS, THINGS, TEXTS, FRUIT, ANIMALS),
        places=TRADING,
    ),
    Verb(
        "find",
        "found",
        "finden",
        "findet",
        "gefunden",
        aspect=_EVENT,
        objects=(THINGS, THINGS, TEXTS, ANIMALS),
        serves=True,
    ),
    Verb("look for", "looked for", "suchen", "sucht", "gesucht", objects=(THINGS, THINGS, TEXTS, ANIMALS)),
    Verb("need", "needed", "brauchen", "braucht", "gebraucht", aspect=_STATE, objects=(THINGS, TEXTS, FURNITURE)),
    Verb("have", "had", "haben", "hat", "gehabt", aspect=_STATE, preterite="hatte", objects=(THINGS, ANIMALS)),
    Verb("love", "loved", "lieben", "liebt", "geliebt", aspect=_STATE, objects=(*PEOPLE, ANIMALS, ANIMALS, ANIMALS)),
    Verb("know", "knew", "kennen", "kennt", "gekannt", aspect=_STATE, preterite="kannte", objects=PEOPLE),
    Verb("visit", "visited", "besuchen", "besucht", "besucht", objects=PEOPLE, places=CITIES),
    Verb("call", "called", "an|rufen", "ruft", "angerufen", objects=PEOPLE, places=()),
    Verb("invite", "invited", "ein|laden", "lädt", "eingeladen", objects=PEOPLE, places=()),
    Verb("read", "read", "lesen", "liest", "gelesen", objects=(TEXTS,)),
    Verb("write", "wrote", "schreiben", "schreibt", "geschrieben", objects=(WRITINGS,)),
    Verb("open", "opened", "auf|machen", "macht", "aufgemacht", objects=(OPENINGS,), places=AT_HOME),
    Verb("close", "closed", "zu|machen", "macht", "zugemacht", objects=(OPENINGS,), places=AT_HOME),
    Verb("clean", "cleaned", "putzen", "putzt", "geputzt", objects=(FURNITURE, OPENINGS), serves=True, places=AT_HOME),
    Verb("try on", "tried on", "an|probieren", "probiert", "anprobiert", objects=(CLOTHES,), places=TRADING),
    Verb("help", "helped", "helfen", "hilft", "geholfen", objects=PEOPLE, case=_DATIVE),
    Verb("thank", "thanked", "danken", "dankt", "gedankt", objects=PEOPLE, case=_DATIVE),
    Verb("answer", "answered", "antworten", "antwortet", "geantwortet", objects=PEOPLE, case=_DATIVE),
    Verb("listen to", "listened to", "zu|hören", "hört", "zugehört", objects=PEOPLE, case=_DATIVE),
    _FOLLOW,
)
PREPOSITIONAL_DEALINGS = (
    Verb("wait for", "waited for", "warten", "wartet", "gewartet", objects=(*PEOPLE, VEHICLES), preposition="auf"),
    Verb("think of", "thought of", "denken", "denkt", "gedacht", aspect=_STATE, objects=PEOPLE, preposition="an"),
    Verb(
        "talk with", "talked with", "sprechen", "spricht", "gesprochen", objects=PEOPLE, case=_DATIVE, preposition="mit"
    ),
    Verb(
        "play with",
        "played with",
        "spielen",
        "spielt",
        "gespielt",
        objects=(ANIMALS,),
        case=_DATIVE,
        preposition="mit",
        places=OUTDOORS,
    ),
)
GIVINGS = (
    Verb("give", "gave", "geben", "gibt", "gegeben", objects=(THINGS, TEXTS, FRUIT), recipients=PEOPLE),
    Verb("show", "showed", "zeigen", "zeigt", "gezeigt", objects=(THINGS, TEXTS, ANIMALS), recipients=PEOPLE),
    Verb("bring", "brought", "bringen", "bringt", "gebracht", objects=(TEXTS, DRINKS, FRUIT), recipients=PEOPLE),
    Verb("offer", "offered", "an|bieten", "bietet", "angeboten", objects=(DRINKS, FRUIT, MEALS), recipients=PEOPLE),
)
REPORTS = (
    Verb("know", "knew", "wissen", "weiß", "gewusst", aspect=_STATE, first="weiß", preterite="wusste"),
    Verb("think", "thought", "glauben", "glaubt", "geglaubt", aspect=_STATE),
    Verb("say", "said", "sagen", "sagt", "gesagt", aspect=_STATE),
    Verb("hope", "hoped", "hoffen", "hofft", "gehofft", aspect=_STATE),
)

PERSON_VERBS = (*ACTIVITIES, *MOTIONS, *DEALINGS, *PREPOSITIONAL_DEALINGS, *GIVINGS, PUT)
_DRINK_OF_ANIMALS = replace(_DRINK, objects=(DRINKS.only("water", "milk"),))
ANIMAL_VERBS = (_SLEEP, _SIT, _PLAY, _RUN, _COME, _EAT, _DRINK_OF_ANIMALS, _SEE, _FOLLOW)
PERSON_EVENTS = tuple(verb for verb in PERSON_VERBS if verb.aspect is not Aspect.STATE)
"""The verbs that fit a point in time. All verbs of animals do."""
