"""Numerals, dates and other adverbials of time and frequency.

Knows which of them go with which tense: Babel spells the dates and num2words the numerals. Called by the rules that
build noun phrases, predicates and clauses.
"""

from datetime import date, timedelta

from babel.dates import format_date, get_day_names, get_month_names
from num2words import num2words

from model.demo.lexicon import Pair, spread
from model.demo.verb_form import Tense


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

_OF_PRESENT = spread({_TODAY: 3, _REPEATED: 6, _WEEKDAYS: 4, _HOURS: 2, _DATES: 3})
_OF_PAST = spread({_YESTERDAY: 6, _WEEKDAYS: 4, _MONTHS: 2, _AGO: 2, _DATES: 3})
_OF_FUTURE = spread({_TODAY: 2, _TOMORROW: 6, _WEEKDAYS: 4, _HOURS: 1, _AHEAD: 2, _DATES: 3})

TIMES: dict[Tense, tuple[tuple[Pair, ...], ...]] = {
    Tense.PRESENT: _OF_PRESENT,
    Tense.PROGRESSIVE: (_NOW,),
    Tense.PAST: _OF_PAST,
    Tense.FUTURE: _OF_FUTURE,
    Tense.CAN: _OF_FUTURE,
    Tense.MUST: _OF_FUTURE,
    Tense.WANT: _OF_FUTURE,
    Tense.COULD: _OF_PAST,
    Tense.HAD_TO: _OF_PAST,
    Tense.WANTED: _OF_PAST,
}
"""The kinds of adverbials of time that go with a tense: pick a kind, then one of its kind."""

FREQUENCIES = (
    Pair("often", "oft"),
    Pair("always", "immer"),
    Pair("never", "nie"),
    Pair("sometimes", "manchmal"),
    Pair("rarely", "selten"),
)
