"""Finite verb forms and expressions of time.

Every tense of a verb is split into the pieces of the word order. English simple past corresponds to the German perfect
(or preterite); English present and progressive both correspond to the German present. Numerals, dates and adverbials
of frequency name the tenses that they go with.
"""

from datetime import date, timedelta
from enum import IntEnum, auto
from functools import cache
from typing import NamedTuple

from babel.dates import format_date, get_day_names, get_month_names
from num2words import num2words

from model.demo.inflection import Agreement, add_ing, add_s
from model.demo.lexicon import Pair, spread
from model.demo.verbs import Aspect, Verb


class Tense(IntEnum):
    """A tense, or a modal verb in a tense."""

    PRESENT = auto()
    PROGRESSIVE = auto()
    PAST = auto()
    FUTURE = auto()
    CAN = auto()
    MUST = auto()
    WANT = auto()
    COULD = auto()
    HAD_TO = auto()
    WANTED = auto()


class Mood(IntEnum):
    """The tenses that a clause may choose from, so that the clauses of a sentence fit each other."""

    ANY = auto()
    PRESENT = auto()
    PAST = auto()
    CONDITION = auto()
    """A condition: no English `if` with `will`."""
    CONSEQUENCE = auto()
    """The consequence of a condition: no progressive."""
    DATED = auto()
    """Any tense that fits a point in time."""


class EnglishForm(NamedTuple):
    """Two halves of a verb: `helper main` in a statement, `support ... bare` in a question and with `not`.

    For `buys` that is "" + "buys" and "does" + "buy", for `can buy` it is "can" + "buy" twice.
    """

    helper: str
    main: str
    support: str
    bare: str

    @property
    def negated_support(self) -> str:
        """The support with `not`: `does not`, `cannot`."""
        return "cannot" if self.support == "can" else f"{self.support} not"


class GermanForm(NamedTuple):
    """The finite verb; what closes a verb-second clause; and what closes a verb-final one: macht, auf, aufmacht."""

    finite: str
    end: str
    final: str


class VerbForm(NamedTuple):
    """A finite verb in both languages."""

    english: EnglishForm
    german: GermanForm


_MODALS = {
    Tense.FUTURE: ("werde", "wird", "werden"),
    Tense.CAN: ("kann", "kann", "können"),
    Tense.MUST: ("muss", "muss", "müssen"),
    Tense.WANT: ("will", "will", "wollen"),
    Tense.COULD: ("konnte", "konnte", "konnten"),
    Tense.HAD_TO: ("musste", "musste", "mussten"),
    Tense.WANTED: ("wollte", "wollte", "wollten"),
}
_MAY = ("darf", "darf", "dürfen")
_HABEN = {Agreement.FIRST: "habe", Agreement.THIRD: "hat", Agreement.PLURAL: "haben"}
_SEIN = {Agreement.FIRST: "bin", Agreement.THIRD: "ist", Agreement.PLURAL: "sind"}

_ENGLISH_HELPERS = {Tense.FUTURE: "will", Tense.CAN: "can", Tense.MUST: "must", Tense.COULD: "could"}
_DO = {Agreement.FIRST: "do", Agreement.THIRD: "does", Agreement.PLURAL: "do"}
_AM = {Agreement.FIRST: "am", Agreement.THIRD: "is", Agreement.PLURAL: "are"}
_WAS = {Agreement.FIRST: "was", Agreement.THIRD: "was", Agreement.PLURAL: "were"}

_OF_PRESENT = {Tense.PRESENT: 14, Tense.CAN: 4, Tense.MUST: 3, Tense.WANT: 3, Tense.FUTURE: 3}
_OF_PAST = {Tense.PAST: 10, Tense.COULD: 1, Tense.HAD_TO: 1, Tense.WANTED: 2}
_WEIGHTS = {
    Mood.ANY: {Tense.PROGRESSIVE: 3} | _OF_PRESENT | _OF_PAST,
    Mood.PRESENT: {Tense.PROGRESSIVE: 3} | _OF_PRESENT,
    Mood.PAST: _OF_PAST,
    Mood.CONDITION: {Tense.PRESENT: 4, Tense.CAN: 1, Tense.WANT: 1},
    Mood.CONSEQUENCE: _OF_PRESENT,
    Mood.DATED: _OF_PRESENT | _OF_PAST,
}


@cache
def tenses_of(verb: Verb, mood: Mood) -> tuple[Tense, ...]:
    """Returns the possible tenses of a verb, repeated by weight.

    A verb whose English past is its base (`They read`) never stands in the past: German would have two translations.
    """
    excluded = {Aspect.ACTION: set[Tense](), Aspect.EVENT: {Tense.PROGRESSIVE}, Aspect.STATE: set(Tense)}[verb.aspect]
    if verb.aspect is Aspect.STATE:
        excluded -= {Tense.PRESENT, Tense.PAST}
    if verb.past == verb.english:
        excluded |= {Tense.PAST}
    return spread({tense: weight for tense, weight in _WEIGHTS[mood].items() if tense not in excluded})


@cache
def verb_form(verb: Verb, tense: Tense, agreement: Agreement, *, negative: bool = False) -> VerbForm:
    """Conjugates a verb. Negation matters to one form only: `must not` is darf nicht."""
    modal = _MAY if negative and tense is Tense.MUST else _MODALS.get(tense)
    german = _german_with_modal(verb, modal, agreement) if modal else _german_simple(verb, tense, agreement)
    return VerbForm(_english_form(verb, tense, agreement), german)


def _english_form(verb: Verb, tense: Tense, agreement: Agreement) -> EnglishForm:
    base = verb.english
    match tense:
        case Tense.PRESENT | Tense.PAST if base == "be":
            be = (_AM if tense is Tense.PRESENT else _WAS)[agreement]
            form = EnglishForm(be, "", be, "")
        case Tense.PRESENT:
            form = _english_present(base, agreement)
        case Tense.PAST:
            form = EnglishForm("", verb.past, "did", base)
        case Tense.PROGRESSIVE:
            be, doing = _AM[agreement], add_ing(base)
            form = EnglishForm(be, doing, be, doing)
        case Tense.WANT:
            form = _english_present(f"want to {base}", agreement)
        case Tense.WANTED:
            form = EnglishForm("", f"wanted to {base}", "did", f"want to {base}")
        case Tense.HAD_TO:
            form = EnglishForm("", f"had to {base}", "did", f"have to {base}")
        case Tense.FUTURE | Tense.CAN | Tense.MUST | Tense.COULD:
            helper = _ENGLISH_HELPERS[tense]
            form = EnglishForm(helper, base, helper, base)
    return form


def _english_present(verb: str, agreement: Agreement) -> EnglishForm:
    main = add_s(verb) if agreement is Agreement.THIRD else verb
    return EnglishForm("", main, _DO[agreement], verb)


def _german_with_modal(verb: Verb, modal: tuple[str, str, str], agreement: Agreement) -> GermanForm:
    finite = dict(zip(Agreement, modal, strict=True))[agreement]
    return GermanForm(finite, verb.infinitive, f"{verb.infinitive} {finite}")


def _german_simple(verb: Verb, tense: Tense, agreement: Agreement) -> GermanForm:
    if tense is not Tense.PAST:
        finite = _german_present(verb, agreement)
        return GermanForm(finite, verb.prefix, verb.prefix + finite)
    if verb.preterite:
        finite = _plural_preterite(verb.preterite) if agreement is Agreement.PLURAL else verb.preterite
        return GermanForm(finite, "", finite)
    auxiliary = (_SEIN if verb.auxiliary == "sein" else _HABEN)[agreement]
    return GermanForm(auxiliary, verb.participle, f"{verb.participle} {auxiliary}")


def _german_present(verb: Verb, agreement: Agreement) -> str:
    infinitive = verb.german.split("|")[-1]
    return {
        Agreement.FIRST: verb.first or infinitive.removesuffix("n"),
        Agreement.THIRD: verb.third,
        Agreement.PLURAL: verb.plural or infinitive,
    }[agreement]


def _plural_preterite(singular: str) -> str:
    return singular + ("n" if singular.endswith("e") else "en")


def _numeral(number: int) -> Pair:
    """Spells a number out. No number here ends in a single one, which German would have to decline."""
    return Pair(num2words(number, lang="en"), num2words(number, lang="de"))


def _counting(numbers: range, english: str, german: str) -> tuple[Pair, ...]:
    """Fills each number into a pair of phrases."""
    numerals = map(_numeral, numbers)
    return tuple(Pair(english.format(number.english), german.format(number.german)) for number in numerals)


def _dates() -> tuple[Pair, ...]:
    """Returns every day of a year: `on March 3`, `am 3. März`."""
    days = (date(2023, 1, 1) + timedelta(days=day) for day in range(365))
    return tuple(
        Pair(f"on {format_date(day, 'MMMM d', 'en')}", f"am {format_date(day, 'd. MMMM', 'de')}") for day in days
    )


NUMERALS = _counting(range(2, 100), "{}", "{}") + 5 * _counting(range(2, 21), "{}", "{}")
AGES_OF_CHILDREN = _counting(range(2, 20), "{} years old", "{} Jahre alt")
AGES_OF_ADULTS = _counting(range(20, 100), "{} years old", "{} Jahre alt")
PRICES = _counting(range(2, 100), "{} euros", "{} Euro") + 3 * _counting(range(100, 1000, 100), "{} euros", "{} Euro")

_TODAY = (Pair("today", "heute"),)
_NOW = (Pair("now", "jetzt"), Pair("right now", "gerade"))
_REPEATED = (Pair("at night", "in der Nacht"), Pair("in the morning", "am Morgen"), Pair("in the evening", "am Abend"))
_YESTERDAY = (Pair("yesterday", "gestern"), Pair("last week", "letzte Woche"), Pair("last year", "letztes Jahr"))
_TOMORROW = (Pair("tomorrow", "morgen"), Pair("soon", "bald"), Pair("next week", "nächste Woche"))
_WEEKDAYS = tuple(
    Pair(f"on {english}", f"am {german}")
    for english, german in zip(get_day_names(locale="en").values(), get_day_names(locale="de").values(), strict=True)
)
_MONTHS = tuple(
    Pair(f"in {english}", f"im {german}")
    for english, german in zip(
        get_month_names(locale="en").values(), get_month_names(locale="de").values(), strict=True
    )
)
_DATES = _dates()
_HOURS = _counting(range(2, 13), "at {} o'clock", "um {} Uhr")
_AGO = _counting(range(2, 13), "{} days ago", "vor {} Tagen") + _counting(range(2, 13), "{} years ago", "vor {} Jahren")
_AHEAD = _counting(range(2, 13), "in {} days", "in {} Tagen") + _counting(range(2, 13), "in {} weeks", "in {} Wochen")

_TIMES_OF_PRESENT = spread({_TODAY: 3, _REPEATED: 6, _WEEKDAYS: 4, _HOURS: 2, _DATES: 3})
_TIMES_OF_PAST = spread({_YESTERDAY: 6, _WEEKDAYS: 4, _MONTHS: 2, _AGO: 2, _DATES: 3})
_TIMES_OF_FUTURE = spread({_TODAY: 2, _TOMORROW: 6, _WEEKDAYS: 4, _HOURS: 1, _AHEAD: 2, _DATES: 3})

TIMES: dict[Tense, tuple[tuple[Pair, ...], ...]] = {
    Tense.PRESENT: _TIMES_OF_PRESENT,
    Tense.PROGRESSIVE: (_NOW,),
    Tense.PAST: _TIMES_OF_PAST,
    Tense.FUTURE: _TIMES_OF_FUTURE,
    Tense.CAN: _TIMES_OF_FUTURE,
    Tense.MUST: _TIMES_OF_FUTURE,
    Tense.WANT: _TIMES_OF_FUTURE,
    Tense.COULD: _TIMES_OF_PAST,
    Tense.HAD_TO: _TIMES_OF_PAST,
    Tense.WANTED: _TIMES_OF_PAST,
}
"""The kinds of adverbials of time that go with a tense: pick a kind, then one of its kind."""

FREQUENCIES = (
    Pair("often", "oft"),
    Pair("always", "immer"),
    Pair("never", "nie"),
    Pair("sometimes", "manchmal"),
    Pair("rarely", "selten"),
)
