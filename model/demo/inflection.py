"""The inflection of noun phrases and verbs, in both languages, with links.

A gender is the last letter of its article; `p` is the plural. A case is the place of its form.
"""

from functools import cache
from typing import NamedTuple

from dragoman.model.demo.lexicon import DATA, DETERMINERS, PHRASES, TENSES, Determiner
from dragoman.model.demo.text import Text, join, mark

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
FIRST, THIRD, PLURAL = range(3)
"""The agreement of a finite verb. Both languages have one plural form for the first and the third person."""

_ARTICLES: dict[str, list[str]] = DATA["articles"]
_STRONG: dict[str, list[str]] = DATA["strong_endings"]
_WEAK: dict[str, list[str]] = DATA["weak_endings"]
_WITHOUT_ENDING = {("r", NOMINATIVE), ("s", NOMINATIVE), ("s", ACCUSATIVE)}
_CONTRACTIONS: dict[str, str] = DATA["contractions"]
_BE = {"present": ("am", "is", "are"), "past": ("was", "was", "were")}
_CONJUGATIONS = {forms[1]: forms for forms in DATA["conjugations"]}


class NounPhrase(NamedTuple):
    """A phrase with one text per German case. `head` is its noun; a `known` object precedes the German time."""

    cases: tuple[Text, ...]
    head: str
    noun_class: str = ""
    agreement: int = THIRD
    gender: str = ""
    known: bool = True

    def numbered(self, number: int) -> "NounPhrase":
        """Returns the phrase with links that no text with another number has."""
        return self._replace(cases=tuple([text.numbered(number) for text in self.cases]))

    def joined(self, before: Text, after: Text) -> "NounPhrase":
        """Returns the phrase with a text before it and a text after it."""
        return self._replace(cases=tuple([Text.joined(before, text, after) for text in self.cases]))


@cache
def noun_phrase(determiner: str, adjective: str, english: str, german: str, *, plural: bool = False) -> NounPhrase:
    """Combines a determiner, an adjective and a noun; the adjective may be empty."""
    row, head, noun = DETERMINERS[determiner], english_noun(english, plural=False), english_noun(english, plural=plural)
    words = join(mark(adjective, "b"), mark(noun, "c"))
    article = row.plural if plural else row.singular
    english = join(mark("an" if article == "a" and words[0] in "aeiou" else article, "a"), words)
    gender = "p" if plural else german[2]
    cases = []
    for case, form in enumerate(_german_noun(german, plural=plural)):
        declined, ending = _decline(row, gender, case)
        described = mark(adjective and _stem(*DATA["adjectives"][adjective]) + ending, "b")
        cases.append(Text(english, join(mark(declined, "a"), described, mark(form, "c"))))
    return NounPhrase(tuple(cases), head, "", PLURAL if plural else THIRD, gender, row.known)


def english_noun(entry: str, *, plural: bool) -> str:
    """Returns the singular or the plural of an English noun; an irregular plural follows after a slash."""
    singular, *irregular = entry.split("/")
    return (irregular or [_add_s(singular)])[0] if plural else singular


def _stem(basic: str, _more: str = "", _comparative: str = "", irregular: str = "") -> str:
    return irregular or basic.removesuffix("e")


def _german_noun(entry: str, *, plural: bool) -> tuple[str, str, str]:
    nominative, genitive, plural_form = (*(form.split()[1] for form in entry.split(", ")), "", "")[:3]
    if plural:
        return plural_form, plural_form, plural_form + ("" if plural_form.endswith(("n", "s")) else "n")
    # A weak masculine has one form for all cases but the nominative: der Junge, den, dem, des Jungen.
    oblique = genitive if entry.startswith("der") and genitive.endswith("n") else nominative
    return nominative, oblique, oblique


def _decline(determiner: Determiner, gender: str, case: int) -> tuple[str, str]:
    """Returns the determiner and the ending of an adjective behind it, weak if the determiner shows the case."""
    stem, declension = determiner.stem, determiner.declension
    strong, weak = _STRONG[gender][case], _WEAK[gender][case]
    if declension == "article":
        return _ARTICLES[gender][case], weak
    if declension == "none" or (declension == "ein_word" and (gender, case) in _WITHOUT_ENDING):
        return stem, strong
    return stem + strong, strong if declension == "quantity" else weak


def pronoun(english: str, german: tuple[str, ...], agreement: int = THIRD) -> NounPhrase:
    """Combines the forms of a pronoun."""
    return NounPhrase(tuple(Text.parse(f"{english} = {form}") for form in german), english, "", agreement)


WHO, WHAT = pronoun("who", ("wer", "wen", "wem")), pronoun("what", ("was", "was", "was"))
SUBJECTS = [pronoun(row[0], tuple(row[2:5]), row[5]) for row in DATA["pronouns"]]
OBJECTS = [pronoun(row[1], tuple(row[2:5]))._replace(head=row[0]) for row in DATA["pronouns"]]
NAMES = [NounPhrase((name,) * 3, name.plain().english) for name in PHRASES["name"]]


def relative(english: str, antecedent: NounPhrase) -> NounPhrase:
    """Returns the relative pronoun for a phrase: the article, except in the dative plural."""
    gender = antecedent.gender
    german = (*_ARTICLES[gender][:DATIVE], "denen" if gender == "p" else _ARTICLES[gender][DATIVE])
    return pronoun(english, german, antecedent.agreement)._replace(
        head=antecedent.head, noun_class=antecedent.noun_class, gender=gender
    )


def prepositional(prepositions: str, phrase: Text) -> Text:
    """Puts a preposition of both languages before a phrase: `in in` makes `in the garden` and im Garten."""
    english, _, german = prepositions.rpartition(" ")
    first, link, rest = phrase.german.partition("~")
    fused = _CONTRACTIONS.get(f"{german} {first}")
    return Text(
        join(mark(english, "p"), phrase.english), f"{fused}~p~{rest}" if fused else f"{german}~p {first}{link}{rest}"
    )


class VerbForm(NamedTuple):
    """A finite verb, in the pieces of the word orders.

    English: `does` + `buy`, or `buys` where no operator is necessary. German: macht + auf, or aufmacht as last words.
    """

    operator: str
    rest: str
    plain: str
    finite: str
    end: str
    last: str

    def numbered(self, number: int) -> "VerbForm":
        """Returns the form with links that no text with another number has."""
        return VerbForm(*[piece.replace("~", f"~{number}_") for piece in self])


@cache
def verb_form(english: str, german: str, tense: str, agreement: int, *, negative: bool = False) -> VerbForm:
    """Conjugates a verb. Negation changes one form only: `must not` is darf nicht."""
    return VerbForm(
        *_english_verb(english, tense, agreement), *_german_verb(german, tense, agreement, negative=negative)
    )


def _english_verb(entry: str, tense: str, agreement: int) -> tuple[str, str, str]:
    base, past, third, ing = (*entry.split("/"), "", "")[:4]
    if base == "be":
        return mark(_BE[tense][agreement], "v"), "", ""
    singular = agreement == THIRD
    head, blank, tail = base.partition(" ")
    forms = {"base": base, "past": past, "ing": ing or f"{head.removesuffix('e')}ing{blank}{tail}"}
    forms["present"] = third or _add_s(base) if singular else base
    words = {name: mark(form, "v") for name, form in forms.items()}
    words |= {
        "do": "does" if singular else "do",
        "want": "wants" if singular else "want",
        "be": _BE["present"][agreement],
    }
    pattern = TENSES[tense]
    return pattern.operator.format(**words), pattern.rest.format(**words), pattern.plain.format(**words)


def _german_verb(entry: str, tense: str, agreement: int, *, negative: bool) -> tuple[str, str, str]:
    parts, third, perfect, preterite = (*entry.split(", "), "")[:4]
    prefix, _, infinitive = parts.rpartition("|")
    modal = TENSES[tense].modal
    if modal:
        finite = f"{_conjugated('darf' if negative and modal == 'muss' else modal, '')[agreement]}~m"
        return finite, f"{prefix}{infinitive}~v", f"{prefix}{infinitive}~v {finite}"
    if tense == "past" and not preterite:
        auxiliary, participle = perfect.split()
        finite = f"{_conjugated(auxiliary, '')[agreement]}~v"
        return finite, f"{participle}~v", f"{participle}~v {finite}"
    finite = _conjugated(preterite if tense == "past" else third, infinitive)[agreement]
    return f"{finite}~v", mark(prefix, "v"), f"{prefix}{finite}~v"


def _conjugated(third: str, infinitive: str) -> tuple[str, ...]:
    return tuple(_CONJUGATIONS.get(third, (infinitive[:-1], third, infinitive)))


def _add_s(word: str) -> str:
    """Adds the English -s of plurals and of third persons to the first word: `looks for`."""
    head, blank, tail = word.partition(" ")
    if head.endswith(("s", "sh", "ch", "x", "o")):
        head += "e"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = f"{head[:-1]}ie"
    return f"{head}s{blank}{tail}"
