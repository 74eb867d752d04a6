"""What `dragoman bench offline` has its systems do, and what it measured of them. Knows no torch.

The tables of `dragoman bench offline`: one for each precision of a model, in Markdown. Knows figures only.

What the models of an offline benchmark translate: a test set as a trained model reads it, or sentences as long.

Called by `benchmarks.offline`.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.rounds import Round, format_figures, ratio
from benchmarks.near_ties import Difference
from benchmarks.systems.compared_model import ComparedModel
from benchmarks.systems.translating import Batching, SourceSentence, draw_sentences
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.tokenizer.tokenizer import EOS_ID
from serve.bundle.manifest import Precision

# Beam sizes by the names of the tasks; the larger beam needs the most memory, so it comes last.
SEARCHES = {"greedy": 1, "beam 4": 4}
# Tokens per second of one system in every pass, by search and by batching.
Trials = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class OfflineWorkload:
    """What the systems do.

    Attributes:
        sentences: what is translated as a whole.
        alone: how many of them are translated one at a time.
        trials: passes of each batching, where several are tried.
        rounds: in which every system has a turn at every task.
        batchings: which of them is best is tried for each system that translates batches.
        rows: the same for our engines.
        engines: those of ours; peers get as many threads as all engines together.
        threads: of each engine.
        alone_threads: numbers of threads for one sentence at a time; the best counts.
    """

    sentences: list[SourceSentence]
    alone: int
    trials: int
    rounds: int
    batchings: tuple[Batching, ...]
    rows: tuple[Batching, ...]
    engines: int
    threads: int
    alone_threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """What was measured of one system.

    Attributes:
        maker: what translates.
        precision: what it computes in.
        trials: of the batchings, of which the best counts.
        together: what it did with all sentences, round by round.
        alone: what it did with one sentence at a time, round by round, by the number of its threads.
        differences: where it translated otherwise than CTranslate2, by search; None if that was not compared.
    """

    maker: str
    precision: Precision
    trials: Trials
    together: list[Round]
    alone: dict[int, list[Round]]
    differences: dict[str, list[Difference]] | None

    def best_threads(self, search: str) -> int:
        """Returns the number of threads with which one sentence at a time takes the least time."""
        return min(
            self.alone, key=lambda threads: statistics.median(each.seconds[search] for each in self.alone[threads])
        )

    def alone_seconds(self, search: str) -> list[float]:
        """Returns how long one sentence after the other took with the best number of threads, round by round."""
        return [each.seconds[search] for each in self.alone[self.best_threads(search)]]


@dataclass(frozen=True, slots=True)
class OfflineModelResult:
    """What was measured of all systems of one model.

    Attributes:
        name: of the model.
        description: its shape.
        sentences: how many were translated.
        alone: how many of them one at a time.
        systems: the results.
    """

    name: str
    description: str
    sentences: int
    alone: int
    systems: list[OfflineResult]


def best(tried: dict[str, list[float]]) -> str:
    """Returns the batching that gave the most tokens per second in any pass: what else a machine does only slows."""
    return max(tried, key=lambda batching: max(tried[batching]))


OURS = "dragoman"


def format_offline(result: OfflineModelResult) -> str:
    """Returns a heading, the tables, and what has to be known of them."""
    parts = [
        f"**{result.name}**: {result.description}. {result.sentences:,} sentences, {result.alone:,} of them alone."
    ]
    parts += [
        _table(result, precision, _beside(result.systems, precision))
        for precision in dict.fromkeys(system.precision for system in result.systems)
    ]
    return "\n\n".join([*parts, "\n".join(_notes(result.systems))])


def format_figure(theirs: list[float], ours: list[float] | None) -> str:
    """Returns the median of figures and, for a rival, how many times that ours is.

    Args:
        theirs: figures of a system, round by round.
        ours: ours; None if those are ours.

    Returns:
        As in `3,402, 1.66x (1.61-1.70)`: median, median of the rounds' ratios, their smallest and their largest.
    """
    return format_figures(theirs, None if ours is None else ratio(ours, theirs))


def _beside(systems: Sequence[OfflineResult], precision: str) -> list[OfflineResult]:
    """Returns the systems of a precision, and then the rivals that have none but another."""
    having = [system for system in systems if system.precision == precision]
    makers = {system.maker for system in having}
    return [*having, *(system for system in systems if system.maker not in makers)]


def _table(result: OfflineModelResult, precision: str, systems: Sequence[OfflineResult]) -> str:
    ours = next(system for system in systems if system.maker == OURS)
    names = [each.maker if each.precision == precision else f"{each.maker}, {each.precision}" for each in systems]
    lines = [_row([precision, *names]), _row(["---", *["---:"] * len(systems)])]
    for label, figures_of_ours in _figures(ours, result).items():
        cells = [
            format_figure(_figures(each, result)[label], None if each is ours else figures_of_ours) for each in systems
        ]
        lines.append(_row([label, *cells]))
    if ours.differences is not None:
        lines += [
            _row([f"{search}, same as ctranslate2", *(_same(each, search, result.sentences) for each in systems)])
            for search in SEARCHES
        ]
    return "\n".join(lines)


def _figures(system: OfflineResult, result: OfflineModelResult) -> dict[str, list[float]]:
    """Returns what is shown of a system, round by round, by the label of its row."""
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
                told = ", ".join(f"{each.sentence} ({each.margin:.1e})" for each in found)
                notes.append(f"- {system.maker}, {search}, sentences that differ from ctranslate2: {told}.")
    return notes


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(system: OfflineResult) -> str:
    """Returns what notes call a system; the precision is ours."""
    return f"{system.maker} {system.precision}" if system.maker == OURS else f"{system.maker} beside {system.precision}"


SEED = 1
# Roughly what a tokenizer cuts a text into, if there is none.
WORDS = re.compile(r"\w+|[^\w\s]")


def sentences_of(models: Sequence[ComparedModel], data: str, count: int | None) -> list[list[SourceSentence]]:
    """Returns the sentences of each model.

    Args:
        models: at most one of them trained.
        data: test data, as `dragoman evaluate` takes them.
        count: so many of them; None: all.

    Raises:
        CorpusError: if they cannot be read, or a model cannot translate them.
    """
    corpus = read_corpus(data, "test")
    corpus = corpus.select(range(min(len(corpus), count or len(corpus))))
    trained = next((model for model in models if model.trained), None)
    lengths = lengths_of(corpus, trained)
    return [trained_sentences(model, corpus) if model.trained else random_sentences(model, lengths) for model in models]


def trained_sentences(model: ComparedModel, corpus: Corpus) -> list[SourceSentence]:
    """Returns the sentences of a test set, whose translations end when the model ends them.

    Raises:
        CorpusError: if the model cannot translate them.
    """
    longest = model.model.config.max_target_tokens
    return [SourceSentence(source_ids, 0, longest) for source_ids in model.source_ids(corpus)]


def random_sentences(model: ComparedModel, lengths: Sequence[tuple[int, int]]) -> list[SourceSentence]:
    """Returns sentences without meaning whose translations get the lengths that are given.

    Raises:
        CorpusError: if one is too long for the model.
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
    """Returns the lengths of each pair: source tokens, the end token included, and target tokens without it.

    Args:
        corpus: the pairs.
        model: whose tokens are counted; None: words and punctuation are.

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
