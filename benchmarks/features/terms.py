"""Measures terms: how many are in the translations, the change of BLEU, and the time per request.

Run `python -m benchmarks.features.terms BUNDLE`. The dictionary comes from the training set by IBM model 1; the
sentences are those of the validation set. Requests follow one another. Two questions:

    given       each term of a sentence has the one translation that its reference has (as in Dinu et al. 2019)
    dictionary  each term has all its translations of the dictionary, as forms

Each is answered without terms, with terms, and with the terms in place of their sources in the text. The last line is
JSON.
"""

import asyncio
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sacrebleu

from benchmarks.harness.feature import fields_of, options_of, show
from dragoman.export.shortlist import Pair, learn
from dragoman.model.data.corpus import read_corpus
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.matching import TermIndex, UnitText, find_form, find_terms
from dragoman.serve.protect.terms.sentence_terms import TermWay

Way = Literal["none", "terms", "replaced"]
WAYS: tuple[Way, ...] = ("none", "terms", "replaced")
_WORD = re.compile(r"\w+")
# What an entry needs: letters, occurrences, and probability of the best and of other forms.
_MIN_LETTERS, _MIN_OCCURRENCES = 4, 5
_MIN_PROBABILITY, _MIN_SHARE = 0.3, 0.3
_MAX_FORMS = 4


def build_dictionary(sources: Sequence[str], targets: Sequence[str]) -> list[Entry]:
    """Returns the entries of words with probable translations."""
    source_ids, source_words = _numbered([text.lower() for text in sources])
    target_ids, target_words = _numbered(targets)
    ids = ([np.array(words, np.int64) for words in side] for side in (source_ids, target_ids))
    cells, probability = learn(list(map(Pair, *ids)), len(target_words))
    occurrences = Counter(number for ids in source_ids for number in ids)
    forms: dict[int, list[tuple[float, str]]] = {}
    for cell in np.flatnonzero(probability > _MIN_PROBABILITY * _MIN_SHARE).tolist():
        source, target = divmod(int(cells[cell]), len(target_words))
        forms.setdefault(source, []).append((float(probability[cell]), target_words[target]))
    return [
        Entry(source_words[source], _best_forms(found))
        for source, found in forms.items()
        if _is_term(source_words[source], occurrences[source]) and max(found)[0] >= _MIN_PROBABILITY
    ]


def _numbered(texts: Sequence[str]) -> tuple[list[list[int]], list[str]]:
    """Returns the words of each text by their numbers, and all words."""
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text)] for text in texts]
    return ids, list(numbers)


def _is_term(word: str, occurrences: int) -> bool:
    return len(word) >= _MIN_LETTERS and word.isalpha() and occurrences >= _MIN_OCCURRENCES


def _best_forms(found: Iterable[tuple[float, str]]) -> tuple[str, ...]:
    best, *others = sorted(found, reverse=True)
    forms = [best, *(other for other in others if other[0] >= _MIN_SHARE * best[0])]
    return tuple(word for _, word in forms[:_MAX_FORMS])


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text with its terms and its reference."""

    text: str
    reference: str
    terms: tuple[Entry, ...]

    @property
    def replaced(self) -> str:
        """The text with the first form of each term in place of the term."""
        text = self.text
        for match in reversed(find_terms(text, [TermIndex(self.terms)])):
            text = f"{text[: match.start]}{match.entry.targets[0]}{text[match.end :]}"
        return text

    def count_included(self, translation: str) -> int:
        """Returns how many of its terms have one of their forms in a translation."""
        return sum(any(_has(translation, form) for form in entry.targets) for entry in self.terms)


def _has(text: str, form: str) -> bool:
    return any(find_form(UnitText(text), form, match_case=False))


def given_sentences(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Returns the sentences whose reference contains a form of a term, with these terms and only this form of each."""
    given = list[Sentence]()
    for sentence in sentences:
        forms = [
            (entry, next((form for form in entry.targets if _has(sentence.reference, form)), ""))
            for entry in sentence.terms
        ]
        terms = tuple(Entry(entry.source, (form,)) for entry, form in forms if form)
        if terms:
            given.append(Sentence(sentence.text, sentence.reference, terms))
    return given


async def ask(
    translator: LocalTranslator, question: str, sentences: Sequence[Sentence], way: Way, direction: tuple[str, str]
) -> dict[str, Any]:
    """Returns the figures of one way, and the shares of the ways in which terms came in, as the responses have it."""
    translations, seconds, ways = list[str](), list[float](), Counter[str]()
    for sentence in sentences:
        text, terms = (
            sentence.replaced if way == "replaced" else sentence.text,
            sentence.terms if way == "terms" else (),
        )
        started_seconds = time.perf_counter()
        translation = await translator.translate(text, terms=terms, split_sentences=False, **fields_of(direction))
        seconds.append(time.perf_counter() - started_seconds)
        translations.append(translation.text)
        ways.update(term.way for term in translation.terms or ())
    count = sum(len(sentence.terms) for sentence in sentences)
    included = sum(sentence.count_included(text) for sentence, text in zip(sentences, translations, strict=True))
    return {
        "question": question,
        "way": way,
        "sentences": len(sentences),
        "terms": count,
        "included": included / count,
        "bleu": sacrebleu.corpus_bleu(translations, [[sentence.reference for sentence in sentences]]).score,
        "mean_ms": 1000 * statistics.fmean(seconds),
        "p95_ms": 1000 * statistics.quantiles(seconds, n=20)[-1],
        **{item.value: ways[item] / max(1, ways.total()) for item in TermWay},
    }


async def measure(bundle: Path, data: str, folder: Path | None) -> list[dict[str, Any]]:
    """Returns the outcome of each way for each question."""
    train, validation = (read_corpus(data, split, folder) for split in ("train", "validation"))
    index = TermIndex(build_dictionary(train.sources, train.targets))
    all_sentences = [
        Sentence(text, reference, tuple(dict.fromkeys(match.entry for match in find_terms(text, [index]))))
        for text, reference in zip(validation.sources, validation.targets, strict=True)
    ]
    sentences = [sentence for sentence in all_sentences if sentence.terms]
    questions = {"given": given_sentences(sentences), "dictionary": sentences}
    outcomes = list[dict[str, Any]]()
    async with LocalTranslator(bundle) as translator:
        await ask(translator, "warm-up", sentences[:50], "none", validation.languages)
        for question, requested in questions.items():
            for way in WAYS:
                outcomes.append(await ask(translator, question, requested, way, validation.languages))
    return outcomes


def main() -> None:
    """Prints a table and the outcomes as JSON."""
    options = options_of(__doc__).parse_args()
    outcomes = asyncio.run(measure(options.bundle, options.data, options.multi30k_folder))
    shares = dict.fromkeys(("included", "present", "decoded", "placed"), "{:.1%}")
    show(outcomes, {**shares, "bleu": "{:.2f}", "mean_ms": "{:.1f}", "p95_ms": "{:.1f}"})


if __name__ == "__main__":
    main()
