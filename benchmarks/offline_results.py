"""The sentences of `dragoman bench offline`, its results, and their tables in Markdown.

A trained model translates a test set. A random model gets made-up sentences with the same source and target lengths.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.rounds import Round, format_figures, ratio, table_line
from benchmarks.near_ties import Difference
from benchmarks.systems.compared_model import ComparedModel
from benchmarks.systems.translating import SourceSentence, draw_sentences
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.tokenizer.tokenizer import EOS_ID
from serve.bundle.manifest import Precision

# Beam sizes by task; the larger beam needs the most memory and comes last.
SEARCHES = {"greedy": 1, "beam 4": 4}
# Tokens per second in every pass, by search and batching.
Trials = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """The results of one system.

    Attributes:
        together: all sentences at once, one entry per round.
        alone: one sentence at a time, one entry per round, by number of threads.
        differences: translations that differ from CTranslate2, by search; None: not compared.
    """

    maker: str
    precision: Precision
    trials: Trials
    together: list[Round]
    alone: dict[int, list[Round]]
    differences: dict[str, list[Difference]] | None

    def best_threads(self, search: str) -> int:
        """Returns the fastest number of threads for one sentence at a time."""
        return min(
            self.alone, key=lambda threads: statistics.median(each.seconds[search] for each in self.alone[threads])
        )

    def alone_seconds(self, search: str) -> list[float]:
        """Returns the time of all single sentences with the best number of threads, one figure per round."""
        return [each.seconds[search] for each in self.alone[self.best_threads(search)]]


@dataclass(frozen=True, slots=True)
class OfflineModelResult:
    """The results of all systems of one model; `alone` of the sentences were translated one at a time."""

    name: str
    description: str
    sentences: int
    alone: int
    systems: list[OfflineResult]


def best(tried: dict[str, list[float]]) -> str:
    """Returns the batching with the fastest single pass: other load on the machine only slows a pass down."""
    return max(tried, key=lambda batching: max(tried[batching]))


DRAGOMAN = "dragoman"


def format_offline(result: OfflineModelResult) -> str:
    """Returns a heading, the tables and their notes."""
    parts = [
        f"**{result.name}**: {result.description}. {result.sentences:,} sentences, {result.alone:,} of them alone."
    ]
    parts += [
        _table(result, precision, _with_other_precisions(result.systems, precision))
        for precision in dict.fromkeys(system.precision for system in result.systems)
    ]
    return "\n\n".join([*parts, "\n".join(_notes(result.systems))])


def format_figure(baseline: list[float], system: list[float] | None) -> str:
    """Returns `3,402, 1.66x (1.61-1.70)`: median of a baseline, then median and range of Dragoman's ratios to it."""
    return format_figures(baseline, None if system is None else ratio(system, baseline))


def _with_other_precisions(systems: Sequence[OfflineResult], precision: str) -> list[OfflineResult]:
    """Returns the systems of a precision, then those that only have other precisions."""
    having = [system for system in systems if system.precision == precision]
    makers = {system.maker for system in having}
    return [*having, *(system for system in systems if system.maker not in makers)]


def _table(result: OfflineModelResult, precision: str, systems: Sequence[OfflineResult]) -> str:
    dragoman = next(system for system in systems if system.maker == DRAGOMAN)
    names = [each.maker if each.precision == precision else f"{each.maker}, {each.precision}" for each in systems]
    lines = [table_line([precision, *names]), table_line(["---", *["---:"] * len(systems)])]
    for label, dragoman_figures in _figures(dragoman, result).items():
        cells = [
            format_figure(_figures(each, result)[label], None if each is dragoman else dragoman_figures)
            for each in systems
        ]
        lines.append(table_line([label, *cells]))
    if dragoman.differences is not None:
        lines += [
            table_line([f"{search}, same as ctranslate2", *(_same(each, search, result.sentences) for each in systems)])
            for search in SEARCHES
        ]
    return "\n".join(lines)


def _figures(system: OfflineResult, result: OfflineModelResult) -> dict[str, list[float]]:
    """Returns the rows of a system by their labels, one figure per round."""
    figures: dict[str, list[float]] = {}
    for search in SEARCHES:
        figures[f"{search}, tokens/s"] = [each.tokens_per_second[search] for each in system.together]
        figures[f"{search}, sentences/s"] = [result.sentences / each.seconds[search] for each in system.together]
    for search in SEARCHES:
        figures[f"{search}, alone, ms"] = [1e3 * each / result.alone for each in system.alone_seconds(search)]
    figures["memory, MB"] = [each.peak_bytes / 1e6 for each in system.together]
    return figures


def _same(system: OfflineResult, search: str, sentences: int) -> str:
    if system.differences is None:
        return ""
    return f"{1 - len(system.differences[search]) / sentences:.2%}"


def _notes(systems: Sequence[OfflineResult]) -> list[str]:
    batchings = [
        f"{_name(system)} {search} {best(tried)}" for system in systems for search, tried in system.trials.items()
    ]
    threads = [f"{_name(system)} {search} {system.best_threads(search)}" for system in systems for search in SEARCHES]
    notes = [
        f"- Batches, or rows of each engine: {', '.join(batchings)}.",
        f"- Threads for one sentence at a time: {', '.join(threads)}.",
    ]
    for system in systems:
        for search, found in (system.differences or {}).items():
            if found:
                listed = ", ".join(f"{each.sentence} ({each.margin:.1e})" for each in found)
                notes.append(f"- {system.maker}, {search}, sentences that differ from ctranslate2: {listed}.")
    return notes


def _name(system: OfflineResult) -> str:
    """Returns the name in notes, with the precision of Dragoman that the system is compared with."""
    return (
        f"{system.maker} {system.precision}" if system.maker == DRAGOMAN else f"{system.maker} for {system.precision}"
    )


SEED = 1
# Approximates the tokens of a tokenizer.
WORDS = re.compile(r"\w+|[^\w\s]")


def sentences_of(models: Sequence[ComparedModel], data: str, count: int | None) -> list[list[SourceSentence]]:
    """Returns the sentences of each model, at most one of which is trained.

    Raises:
        CorpusError: if the data is unreadable, or a model cannot translate it.
    """
    corpus = read_corpus(data, "test")
    corpus = corpus.select(range(min(len(corpus), count or len(corpus))))
    trained = next((model for model in models if model.trained), None)
    lengths = lengths_of(corpus, trained)
    return [trained_sentences(model, corpus) if model.trained else random_sentences(model, lengths) for model in models]


def trained_sentences(model: ComparedModel, corpus: Corpus) -> list[SourceSentence]:
    """Returns the sentences of a test set; the model ends their translations.

    Raises:
        CorpusError: if the model cannot translate them.
    """
    longest = model.model.config.max_target_tokens
    return [SourceSentence(source_ids, 0, longest) for source_ids in model.source_ids(corpus)]


def random_sentences(model: ComparedModel, lengths: Sequence[tuple[int, int]]) -> list[SourceSentence]:
    """Returns made-up sentences with the given source and target lengths.

    Raises:
        CorpusError: if a sentence is too long for the model.
    """
    limits = model.model.config
    for number, (source, target) in enumerate(lengths, start=1):
        for side, tokens, most in (
            ("source", source, limits.max_source_tokens),
            ("target", target, limits.max_target_tokens),
        ):
            if tokens > most:
                problem = f"sentence {number}: {tokens} {side} tokens, expected at most {most}"
                raise CorpusError(f"{problem}: see --random.max-{side}-tokens")
    return draw_sentences(SEED, lengths, model.model.vocabulary_size, EOS_ID)


def lengths_of(corpus: Corpus, model: ComparedModel | None) -> list[tuple[int, int]]:
    """Returns the source tokens, EOS included, and the target tokens, EOS excluded, of each pair.

    Without a model, counts words and punctuation.

    Raises:
        CorpusError: if the model cannot translate them.
    """
    if model is None:
        return [
            (len(WORDS.findall(source)) + 1, max(1, len(WORDS.findall(target))))
            for source, target in zip(corpus.sources, corpus.targets, strict=True)
        ]
    return [
        (len(source_ids), max(1, len(model.exportable.tokenizer.encode(target))))
        for source_ids, target in zip(model.source_ids(corpus), corpus.targets, strict=True)
    ]
