"""All checks of a bundle.

Logits: the graphs match PyTorch step by step, along the same translations. Floats are compared with the trained model,
8-bit integers with the trained model rounded in the same places; the tolerance is what rounding changes in PyTorch.
Tokens: the engine matches PyTorch, the graph decoder bit by bit, and the golden sentences. Invariance: a translation is
bitwise the same alone and in any batch. Sentences with greedy and beam search join and leave at random steps; one
different bit fails the check.

Does not import PyTorch: the PyTorch model is passed as `References` or is None. Shapes: B rows, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dragoman.export.answer import Answer, Gap, Labeled, Outcome, Sentence, describe_difference, verdict_of
from dragoman.export.graph_decoder import BATCH_ROWS, GraphDecoder
from dragoman.export.verify.stepper import Reader, Stepper, gap_of
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import GoldenSentence, Precision
from dragoman.serve.host.system import DeviceChoice
from dragoman.serve.runtime.placement import ModelSessions, open_sessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions

if TYPE_CHECKING:
    from dragoman.export.verify.reference import References


@dataclass(frozen=True, slots=True)
class BatchMix:
    """The batches of the invariance check: numbers of concurrent translations, and the seed of their order."""

    batches: tuple[int, ...]
    seed: int


class Deviation(NamedTuple):
    """A translation that differs from the same translation alone."""

    search: str
    sentence: Sentence
    batch: int
    alone: Answer
    batched: Answer


def check_invariance(
    sessions: ModelSessions,
    sentences: Sequence[Sentence],
    searches: Mapping[str, SearchOptions],
    batch_mix: BatchMix,
    *,
    gap: Gap,
    advance: Callable[[int], object],
) -> list[Outcome]:
    """Translates every sentence with every search, alone and in every batch; returns one outcome per search."""
    deviations = find_deviations(sessions, sentences, searches, batch_mix, advance)
    return [
        _outcome(
            search,
            [deviation for deviation in deviations if deviation.search == search],
            len(sentences),
            batch_mix,
            gap,
        )
        for search in searches
    ]


def find_deviations(
    sessions: ModelSessions,
    sentences: Sequence[Sentence],
    searches: Mapping[str, SearchOptions],
    batch_mix: BatchMix,
    advance: Callable[[int], object],
) -> list[Deviation]:
    """Returns the translations that differ from the same translation alone."""
    random = np.random.default_rng(batch_mix.seed)
    named = [(search, sentence) for search in searches for sentence in sentences]
    specs = [SequenceSpec(sentence.source_ids, searches[search]) for search, sentence in named]
    widest = max(options.rows for options in searches.values())
    engine = SyncEngine(sessions, max(batch_mix.batches) * widest)
    alone = engine.translate(specs, 1, advance)
    return [
        Deviation(search, sentence, batch, expected, actual)
        for batch in batch_mix.batches
        for (search, sentence), expected, actual in zip(
            named, alone, engine.translate(specs, batch, advance, random), strict=True
        )
        if not (expected.has_tokens_of(actual) and expected.has_scores_of(actual))
    ]


def _outcome(search: str, deviations: list[Deviation], sentences: int, batch_mix: BatchMix, gap: Gap) -> Outcome:
    tokens = sum(not deviation.alone.has_tokens_of(deviation.batched) for deviation in deviations)
    scores = sum(not deviation.alone.has_scores_of(deviation.batched) for deviation in deviations)
    translations, batches = sentences * len(batch_mix.batches), ", ".join(map(str, batch_mix.batches))
    figure = (
        f"{tokens} of {translations} translations differ in tokens from the translation alone, {scores} in score bits "
        f"({sentences} sentences, batches of {batches}, seed {batch_mix.seed})"
    )
    difference = None
    if deviations:
        _, sentence, batch, alone, batched = deviations[0]
        answers = Labeled("alone", alone), Labeled(f"in a batch of {batch}", batched)
        difference = describe_difference(sentence, *answers, gap)
    return Outcome(f"invariance, {search}", verdict_of(not deviations), figure, difference)


class LogitDifference(NamedTuple):
    """The token with the largest logit difference of a step."""

    sentence: Sentence
    target_ids: tuple[int, ...]  # before the step
    token_id: int
    expected: float
    actual: float

    @property
    def difference(self) -> float:
        """Absolute difference of the logits."""
        return abs(self.actual - self.expected)


class Tolerance(NamedTuple):
    """The permitted difference of logits, and the reason for it."""

    value: float
    reason: str


def compare_logits(
    expected: Stepper,
    actual: Stepper,
    sentences: Sequence[Sentence],
    targets: Sequence[tuple[int, ...]],
    *,
    rows: int,
    advance: Callable[[int], object],
) -> list[LogitDifference]:
    """Runs both models along the targets, in batches of `rows`; returns the worst token of every step."""
    apart: list[LogitDifference] = []
    for start in range(0, len(sentences), rows):
        batch = slice(start, start + rows)
        apart += _compare_batch(expected, actual, sentences[batch], targets[batch])
        advance(len(sentences[batch]))
    return apart


def largest(apart: Sequence[LogitDifference]) -> float:
    """Returns the largest difference; NaN if any logit is NaN."""
    return float(np.max([item.difference for item in apart]))


def check_logits(apart: Sequence[LogitDifference], tolerance: Tolerance, reference: str, gap: Gap) -> Outcome:
    """Checks the result of `compare_logits` against the expected model `reference`, whose lead is `gap`."""
    # `not <=` instead of `>`: NaN fails the check.
    first = next((item for item in apart if not item.difference <= tolerance.value), None)
    return Outcome(
        "logits",
        verdict_of(first is None),
        f"difference from {reference} at most {largest(apart):.1e} in {len(apart)} steps; "
        f"{tolerance.value:.1e} permitted, {tolerance.reason}",
        None if first is None else _describe_difference(first, reference, gap),
    )


def _compare_batch(
    expected: Stepper, actual: Stepper, sentences: Sequence[Sentence], targets: Sequence[tuple[int, ...]]
) -> Iterator[LogitDifference]:
    for stepper in (expected, actual):
        stepper.start([sentence.source_ids for sentence in sentences])
    lengths = np.array([len(target) for target in targets])
    token_ids = np.full(len(targets), expected.bos_id)
    for position in range(min(int(lengths.max()) + 1, expected.max_target_tokens)):
        theirs, ours = expected.step(token_ids), actual.step(token_ids)
        worst = np.abs(ours - theirs).argmax(axis=1)  # [B]; argmax returns the first NaN if there is one
        for row in np.flatnonzero(position <= lengths).tolist():
            token_id = int(worst[row])
            logits = float(theirs[row, token_id]), float(ours[row, token_id])
            yield LogitDifference(sentences[row], targets[row][:position], token_id, *logits)
        # Finished rows repeat their last token.
        read = zip(targets, token_ids.tolist(), strict=True)
        token_ids = np.array([target[position] if position < len(target) else last for target, last in read])


def _describe_difference(apart: LogitDifference, reference: str, gap: Gap) -> str:
    lead = gap(apart.sentence.source_ids, apart.target_ids)
    return (
        f"step {len(apart.target_ids)}: the logit of token {apart.token_id} is {apart.expected:.6f} in {reference}, "
        f"{apart.actual:.6f} in ONNX Runtime; the best logit leads by {lead:.2e}: {apart.sentence.text}"
    )


ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Demands:
    """Required agreement with PyTorch; `score_tolerance`, in nats, applies to translations with equal tokens."""

    minimum_identical: float
    score_tolerance: float


def check_against_pytorch(
    search: str,
    sentences: Sequence[Sentence],
    expected: Sequence[Answer],
    actual: Sequence[Answer],
    *,
    demands: Demands,
    gap: Gap,
) -> Outcome:
    """Compares the engine's translations with PyTorch's of the same search."""
    pairs = list(zip(sentences, expected, actual, strict=True))
    different = [pair for pair in pairs if not pair[1].has_tokens_of(pair[2])]
    same = [pair for pair in pairs if pair[1].has_tokens_of(pair[2])]
    errors = [abs(theirs.score - ours.score) for _, theirs, ours in same]
    # `not <=` instead of `>`: NaN fails the check.
    apart = [pair for pair, error in zip(same, errors, strict=True) if not error <= demands.score_tolerance]
    few = len(same) < demands.minimum_identical * len(pairs)
    share = f" ({demands.minimum_identical:.1%} required)" if demands.minimum_identical else ""
    limit = f" ({demands.score_tolerance:.1e} permitted)" if isfinite(demands.score_tolerance) else ""
    figure = (
        f"{len(same)} of {len(pairs)} translations have PyTorch's tokens{share}, "
        f"with a score difference of at most {np.max(errors, initial=0.0):.1e}{limit}"
    )
    first = (different if few else apart)[:1]
    return Outcome(f"tokens, {search}", verdict_of(not first), figure, _describe_first(first, "PyTorch", gap))


def check_against_graph_decoder(
    sentences: Sequence[Sentence], expected: Sequence[Answer], actual: Sequence[Answer], gap: Gap
) -> Outcome:
    """Compares the engine's greedy translations bit by bit with those of the graph decoder."""
    pairs = list(zip(sentences, expected, actual, strict=True))
    different = [pair for pair in pairs if not (pair[1].has_tokens_of(pair[2]) and pair[1].has_scores_of(pair[2]))]
    return Outcome(
        "engine, greedy",
        verdict_of(not different),
        f"{len(pairs) - len(different)} of {len(pairs)} translations are bitwise those of the graph decoder",
        _describe_first(different[:1], "graph decoder", gap),
    )


def check_golden(
    golden: Sequence[GoldenSentence], sources: Sequence[tuple[int, ...]], actual: Sequence[Answer], gap: Gap
) -> Outcome:
    """Compares the engine with the trained model's translations in the bundle.

    `sources` are the tokens that the bundle's tokenizer reads; `actual` translates the recorded source ids.
    """
    misread = [
        sentence for sentence, source_ids in zip(golden, sources, strict=True) if sentence.source_ids != source_ids
    ]
    # Golden sentences have no scores: both answers get the engine's.
    pairs = [
        (Sentence(sentence.source, sentence.source_ids), answer._replace(target_ids=sentence.target_ids), answer)
        for sentence, answer in zip(golden, actual, strict=True)
    ]
    wrong = [pair for pair in pairs if not pair[1].has_tokens_of(pair[2])]
    if misread:
        difference: str | None = f"source ids differ from the trained model's: {misread[0].source}"
    else:
        difference = _describe_first(wrong[:1], "trained model", gap)
    return Outcome(
        "golden sentences",
        verdict_of(not misread and not wrong),
        f"{len(golden) - len(misread)} of {len(golden)} have the trained model's source ids, "
        f"{len(golden) - len(wrong)} its translation",
        difference,
    )


def _describe_first(pairs: Sequence[tuple[Sentence, Answer, Answer]], name: str, gap: Gap) -> str | None:
    return next(
        (
            describe_difference(sentence, Labeled(name, expected), Labeled(ENGINE, actual), gap)
            for sentence, expected, actual in pairs
        ),
        None,
    )


Advance = Callable[[int], object]
Check = Literal["logits", "tokens", "invariance"]
GREEDY = "greedy"
# Half of the lead that golden sentences require: if both logits move by less, the best token stays the same.
LOGITS_TOLERANCES: dict[Precision, float] = {"fp32": 5e-4, "fp16": 0.05, "int8": 5e-4}
NO_RUN = "requires --run, the training run of the bundle"


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """Which checks run, and their tolerances. Greedy search is always included.

    If `logits_tolerance` is None, it is half of the lead that golden sentences require; in 8 bits, as much as rounding
    changes PyTorch's logits.
    """

    checks: tuple[Check, ...]
    sentences: int
    invariance_sentences: int
    beam_size: int
    length_penalty: float
    demands: Demands
    logits_tolerance: float | None
    batch_mix: BatchMix


class Examination:
    """Runs the checks of one bundle."""

    def __init__(
        self,
        bundle: Bundle,
        reader: Reader,
        sentences: Sequence[Sentence],
        references: "References | None",
        plan: VerificationPlan,
        *,
        device: DeviceChoice = "auto",
    ) -> None:
        """Opens the bundle's graphs; raises BundleError if ONNX Runtime cannot run them.

        Sentences are of one direction and fit the bundle. Without `references`, checks that need PyTorch are skipped.
        """
        self._bundle = bundle
        self._reader = reader
        self._compared = sentences[: plan.sentences]
        self._batched = sentences[: plan.invariance_sentences]
        self._references = references
        self._plan = plan
        self._sessions = open_sessions(bundle, device)
        self._graph_decoder = GraphDecoder(self._sessions)
        limit = bundle.manifest.max_target_tokens
        self._searches = {
            GREEDY: SearchOptions(max_target_tokens=limit),
            f"beam {plan.beam_size}": SearchOptions(
                max_target_tokens=limit, beam_size=plan.beam_size, length_penalty=plan.length_penalty
            ),
        }

    def outcomes(self, advance: Advance) -> Iterator[Outcome]:
        """Yields the outcome of each check; calls `advance` with the number of finished translations."""
        plan = self._plan
        greedy: list[Answer] = []
        if self._references is not None and not {"logits", "tokens"}.isdisjoint(plan.checks):
            greedy = self._references.trained.translate(self._sources, 1, plan.length_penalty, advance)
        if "logits" in plan.checks:
            yield self._check_logits(greedy, advance)
        if "tokens" in plan.checks:
            yield from self._check_tokens(greedy, advance)
        if "invariance" in plan.checks:
            yield from check_invariance(
                self._sessions,
                self._batched,
                self._searches,
                plan.batch_mix,
                gap=gap_of(self._graph_decoder),
                advance=advance,
            )

    @property
    def _sources(self) -> list[tuple[int, ...]]:
        return [sentence.source_ids for sentence in self._compared]

    def _check_logits(self, greedy: Sequence[Answer], advance: Advance) -> Outcome:
        if self._references is None:
            return Outcome("logits", "skip", NO_RUN)
        trained, rounded = self._references
        targets = [answer.target_ids for answer in greedy]

        def compare(expected: Stepper, actual: Stepper) -> list[LogitDifference]:
            return compare_logits(expected, actual, self._compared, targets, rows=BATCH_ROWS, advance=advance)

        tolerance = Tolerance(
            LOGITS_TOLERANCES[self._bundle.manifest.precision], "half of the lead in golden sentences"
        )
        if self._plan.logits_tolerance is not None:
            tolerance = Tolerance(self._plan.logits_tolerance, "as requested")
        elif rounded is not None:
            tolerance = Tolerance(largest(compare(trained, rounded)), "the change by rounding in PyTorch")
        reference, name = (trained, "PyTorch") if rounded is None else (rounded, "PyTorch in 8 bits")
        return check_logits(compare(reference, self._graph_decoder), tolerance, name, gap_of(reference))

    def _check_tokens(self, greedy: Sequence[Answer], advance: Advance) -> Iterator[Outcome]:
        options = self._searches[GREEDY]
        served = self._serve(self._sources, options, advance)
        yield from self._compare_with_pytorch(greedy, served, advance)
        gap = gap_of(self._graph_decoder)
        decoded = self._graph_decoder.translate(self._sources, advance)
        yield check_against_graph_decoder(self._compared, decoded, served, gap)
        golden = self._bundle.golden
        sources = [self._reader.source_ids(sentence.languages, sentence.source) for sentence in golden]
        answers = self._serve([sentence.source_ids for sentence in golden], options, advance)
        yield check_golden(golden, sources, answers, gap)

    def _compare_with_pytorch(
        self, greedy: Sequence[Answer], served: Sequence[Answer], advance: Advance
    ) -> Iterator[Outcome]:
        if self._references is None:
            yield Outcome("tokens", "skip", NO_RUN)
            return
        trained, plan = self._references.trained, self._plan
        gap = gap_of(trained)
        yield check_against_pytorch(GREEDY, self._compared, greedy, served, demands=plan.demands, gap=gap)
        name, options = next((name, options) for name, options in self._searches.items() if name != GREEDY)
        beams = trained.translate(self._sources, plan.beam_size, plan.length_penalty, advance)
        served = self._serve(self._sources, options, advance)
        yield check_against_pytorch(name, self._compared, beams, served, demands=plan.demands, gap=gap)

    def _serve(self, sources: Sequence[tuple[int, ...]], options: SearchOptions, advance: Advance) -> list[Answer]:
        """Translates with the server's engine."""
        engine = SyncEngine(self._sessions, BATCH_ROWS * options.rows)
        return engine.translate([SequenceSpec(source_ids, options) for source_ids in sources], BATCH_ROWS, advance)
