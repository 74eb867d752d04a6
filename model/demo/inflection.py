"""Inflection: German declension, and the regular English endings.

Contains endings, spelling and the few irregular English forms. Callers cache the results.
"""

from enum import Enum, IntEnum, auto


class Case(IntEnum):
    """The four German cases; a value is a form's place in a tuple of four forms."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class Gender(Enum):
    """The columns of a German declension table; the plural has one column for all three genders."""

    MASCULINE = "der"
    FEMININE = "die"
    NEUTER = "das"
    PLURAL = "die (plural)"


class Agreement(IntEnum):
    """What a finite verb agrees with. First and third person plural share every form in both languages."""

    FIRST = auto()
    THIRD = auto()
    PLURAL = auto()


class Pattern(Enum):
    """How a determiner is declined, and with it the adjective that follows."""

    ARTICLE = auto()
    """der, die, das; the adjective is weak."""
    DER_WORD = auto()
    """dieser, jeder, welcher; the adjective is weak."""
    EIN_WORD = auto()
    """ein, kein, mein: no ending in three places, where the adjective shows the case instead (mixed)."""
    QUANTITY = auto()
    """viele, einige; the adjective is strong, as without a determiner."""
    FIXED = auto()
    """Nothing at all, a numeral, or a name's genitive (Annas); never declined, the adjective is strong."""


# Rows are genders, columns are cases. All adjective endings derive from these two tables.
_ARTICLES = {
    Gender.MASCULINE: ("der", "den", "dem", "des"),
    Gender.FEMININE: ("die", "die", "der", "der"),
    Gender.NEUTER: ("das", "das", "dem", "des"),
    Gender.PLURAL: ("die", "die", "den", "der"),
}
_STRONG_ENDINGS = {
    Gender.MASCULINE: ("er", "en", "em", "es"),
    Gender.FEMININE: ("e", "e", "er", "er"),
    Gender.NEUTER: ("es", "es", "em", "es"),
    Gender.PLURAL: ("e", "e", "en", "er"),
}
_BARE_EIN = {
    (Gender.MASCULINE, Case.NOMINATIVE),
    (Gender.NEUTER, Case.NOMINATIVE),
    (Gender.NEUTER, Case.ACCUSATIVE),
}
_WEAK_E = _BARE_EIN | {(Gender.FEMININE, Case.NOMINATIVE), (Gender.FEMININE, Case.ACCUSATIVE)}

_CONTRACTIONS = {
    "an dem": "am",
    "in dem": "im",
    "in das": "ins",
    "von dem": "vom",
    "zu dem": "zum",
    "zu der": "zur",
}

_IRREGULAR_THIRD_PERSONS = {"have": "has"}
_DOUBLED_BEFORE_ING = {"get", "run", "sit", "put"}


def decline_determiner(stem: str, pattern: Pattern, gender: Gender, case: Case) -> str:
    """Gives a determiner its German ending; `stem` is ignored for the article and returned unchanged if FIXED."""
    if pattern is Pattern.ARTICLE:
        return _ARTICLES[gender][case]
    bare = pattern is Pattern.EIN_WORD and (gender, case) in _BARE_EIN
    if pattern is Pattern.FIXED or bare:
        return stem
    return stem + _STRONG_ENDINGS[gender][case]


def decline_adjective(stem: str, pattern: Pattern, gender: Gender, case: Case) -> str:
    """Gives an adjective the German ending of its determiner's pattern."""
    if pattern in (Pattern.QUANTITY, Pattern.FIXED):
        genitive_en = case is Case.GENITIVE and gender in (Gender.MASCULINE, Gender.NEUTER)
        return stem + ("en" if genitive_en else _STRONG_ENDINGS[gender][case])
    if pattern is Pattern.EIN_WORD and (gender, case) in _BARE_EIN:
        return stem + _STRONG_ENDINGS[gender][case]
    return stem + ("e" if (gender, case) in _WEAK_E else "en")


def relative_pronoun(gender: Gender, case: Case) -> str:
    """Returns the German relative pronoun: the article, except in the dative plural. The genitive is not used."""
    return "denen" if (gender, case) == (Gender.PLURAL, Case.DATIVE) else _ARTICLES[gender][case]


def dative_plural(plural: str) -> str:
    """Adds the n of the German dative plural, which a plural in -n or -s does without."""
    return plural if plural.endswith(("n", "s")) else plural + "n"


def contract(preposition: str, phrase: str) -> str:
    """Joins a German preposition and a noun phrase, fusing the two as in `im Garten` or `zur Schule`."""
    article, _, rest = phrase.partition(" ")
    fused = _CONTRACTIONS.get(f"{preposition} {article}")
    return f"{fused} {rest}" if fused else f"{preposition} {phrase}"


def add_s(word: str) -> str:
    """Adds the English -s of plurals and of verbs in the third person to the first word: `looks for`."""
    head, blank, tail = word.partition(" ")
    if head in _IRREGULAR_THIRD_PERSONS:
        head = _IRREGULAR_THIRD_PERSONS[head]
    elif head.endswith(("s", "sh", "ch", "x", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + blank + tail


def add_ing(verb: str) -> str:
    """Adds the English -ing to the first word: `looking for`, `running`, `writing`."""
    head, blank, tail = verb.partition(" ")
    if head in _DOUBLED_BEFORE_ING:
        head += head[-1]
    elif head.endswith("e"):
        head = head[:-1]
    return head + "ing" + blank + tail


def indefinite_article(next_word: str) -> str:
    """Chooses between `a` and `an` by the first letter, which is right for every word of the lexicon."""
    return "an" if next_word[0] in "aeiou" else "a"
