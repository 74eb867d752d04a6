"""All checks of one bundle, in their order, and how much work they are. `dragoman verify` shows what they find.

Knows neither texts' languages nor torch: the PyTorch model comes as `References`, or not at all.

Batch invariance: a translation and its scores are bitwise the same alone and in any company.

Every sentence is translated alone, then with strangers, some of them greedily and some with a beam, that join and leave
at random steps. One bit that differs fails the check.

Logits held against each other, step by step along the same translations: PyTorch's and ONNX Runtime's.

A graph in floats is compared with the trained model. One in 8-bit integers cannot equal it: it is compared with the
trained model rounded in the same places, and what it may differ by is what rounding changes in PyTorch itself.

Shapes: B rows, V vocabulary.

Translations held against each other: the engine's against PyTorch's, those made by hand, and golden sentences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.verify.answer import Answer, Gap, Labeled, Outcome, Sentence, describe_difference, verdict_of
from export.verify.graph_decoder import BATCH_ROWS, RuntimeStepper, translate_by_hand
from export.verify.stepper import Reader, References, Stepper, gap_of
from export.verify.sync_engine import SyncEngine
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import GoldenSentence, Precision
from serve.runtime.device_choice import DeviceChoice
from serve.runtime.placement import ModelSessions, open_sessions
from serve.scheduler.sequence import SequenceSpec
from serve.search.options import SearchOptions


@dataclass(frozen=True, slots=True)
class BatchMix:
    """In whose company sentences are translated.

    Attributes:
        batches: how many translations run at once.
        seed: of who joins when.
    """

    batches: tuple[int, ...]
    seed: int


class Deviation(NamedTuple):
    """A translation that company changed."""

    search: str
    sentence: Sentence
    batch: int
    alone: Answer
    accompanied: Answer


def check_invariance(
    sessions: ModelSessions,
    sentences: Sequence[Sentence],
    searches: Mapping[str, SearchOptions],
    companies: BatchMix,
    *,
    gap: Gap,
    advance: Callable[[int], object],
) -> list[Outcome]:
    """Translates every sentence with every search, alone and in each company; returns an outcome for each search."""
    deviations = find_deviations(sessions, sentences, searches, companies, advance)
    return [
        _outcome(search, [each for each in deviations if each.search == search], len(sentences), companies, gap)
        for search in searches
    ]


def find_deviations(
    sessions: ModelSessions,
    sentences: Sequence[Sentence],
    searches: Mapping[str, SearchOptions],
    companies: BatchMix,
    advance: Callable[[int], object],
) -> list[Deviation]:
    """Returns what differs from the same translation alone."""
    random = np.random.default_rng(companies.seed)
    named = [(search, sentence) for search in searches for sentence in sentences]
    specs = [SequenceSpec(sentence.source_ids, searches[search]) for search, sentence in named]
    widest = max(options.rows for options in searches.values())
    engine = SyncEngine(sessions, max(companies.batches) * widest)
    alone = engine.translate(specs, 1, advance)
    return [
        Deviation(search, sentence, batch, expected, actual)
        for batch in companies.batches
        for (search, sentence), expected, actual in zip(
            named, alone, engine.translate(specs, batch, advance, random), strict=True
        )
        if not (expected.has_tokens_of(actual) and expected.has_scores_of(actual))
    ]


def _outcome(search: str, deviations: list[Deviation], sentences: int, companies: BatchMix, gap: Gap) -> Outcome:
    tokens = sum(not each.alone.has_tokens_of(each.accompanied) for each in deviations)
    scores = sum(not each.alone.has_scores_of(each.accompanied) for each in deviations)
    translations, batches = sentences * len(companies.batches), ", ".join(map(str, companies.batches))
    figure = (
        f"{tokens} of {translations} translations differ in a token from the same alone, {scores} in a bit of a score "
        f"({sentences} sentences, batches of {batches}, seed {companies.seed})"
    )
    return Outcome(
        f"invariance, {search}",
        verdict_of(not deviations),
        figure,
        _describe(deviations[0], gap) if deviations else None,
    )


def _describe(deviation: Deviation, gap: Gap) -> str:
    return describe_difference(
        deviation.sentence,
        Labeled("alone it", deviation.alone),
        Labeled(f"in a batch of {deviation.batch} it", deviation.accompanied),
        gap,
    )


class LogitDifference(NamedTuple):
    """The token of a step on whose logit the two models agree least."""

    sentence: Sentence
    target_ids: tuple[int, ...]  # those before the step
    token_id: int
    expected: float
    actual: float

    @property
    def difference(self) -> float:
        """How far the logits are apart."""
        return abs(self.actual - self.expected)


class Tolerance(NamedTuple):
    """How far logits may be apart, and why so far."""

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
    """Forces both models along the targets, `rows` sentences at a time; returns the worst token of every step."""
    apart: list[LogitDifference] = []
    for start in range(0, len(sentences), rows):
        batch = slice(start, start + rows)
        apart += _compare_batch(expected, actual, sentences[batch], targets[batch])
        advance(len(sentences[batch]))
    return apart


def largest(apart: Sequence[LogitDifference]) -> float:
    """Returns the largest difference; NaN if any logit is no number."""
    return float(np.max([each.difference for each in apart]))


def check_logits(apart: Sequence[LogitDifference], tolerance: Tolerance, reference: str, gap: Gap) -> Outcome:
    """Judges what `compare_logits` found.

    Args:
        apart: the worst token of every step.
        tolerance: how far logits may be apart.
        reference: whose logits were expected.
        gap: of the model that they were expected from.
    """
    # Written such that a logit that is no number is too far away.
    first = next((each for each in apart if not each.difference <= tolerance.value), None)
    return Outcome(
        "logits",
        verdict_of(first is None),
        f"at most {largest(apart):.1e} from {reference} in {len(apart)} steps; "
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
        worst = np.abs(ours - theirs).argmax(axis=1)  # [B]; the position of the first NaN if there is one
        for row in np.flatnonzero(position <= lengths).tolist():
            token_id = int(worst[row])
            logits = float(theirs[row, token_id]), float(ours[row, token_id])
            yield LogitDifference(sentences[row], targets[row][:position], token_id, *logits)
        token_ids = _forced(targets, position, token_ids)


def _forced(targets: Sequence[tuple[int, ...]], position: int, token_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the token of each row at a position, int64 [B]; of a row that is over whatever it was."""
    return np.array(
        [
            target[position] if position < len(target) else last
            for target, last in zip(targets, token_ids.tolist(), strict=True)
        ]
    )


def _describe_difference(apart: LogitDifference, reference: str, gap: Gap) -> str:
    lead = gap(apart.sentence.source_ids, apart.target_ids)
    return (
        f"step {len(apart.target_ids)}: the logit of token {apart.token_id} is {apart.expected:.6f} in {reference}, "
        f"{apart.actual:.6f} in ONNX Runtime; the best logit leads by {lead:.2e}: {apart.sentence.text}"
    )


ENGINE = "the engine"


@dataclass(frozen=True, slots=True)
class Demands:
    """What the engine's translations must have in common with PyTorch's.

    Attributes:
        minimum_identical: share of translations with the same tokens; 0: any.
        score_tolerance: how far the scores of these may be apart, in nats; infinite: any distance.
    """

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
    """Compares the engine's translations with PyTorch's, by the same search."""
    pairs = list(zip(sentences, expected, actual, strict=True))
    different = [pair for pair in pairs if not pair[1].has_tokens_of(pair[2])]
    same = [pair for pair in pairs if pair[1].has_tokens_of(pair[2])]
    errors = [abs(theirs.score - ours.score) for _, theirs, ours in same]
    # Written such that a score that is no number is too far away.
    apart = [pair for pair, error in zip(same, errors, strict=True) if not error <= demands.score_tolerance]
    few = len(same) < demands.minimum_identical * len(pairs)
    share = f" ({demands.minimum_identical:.1%} demanded)" if demands.minimum_identical else ""
    limit = f" ({demands.score_tolerance:.1e} permitted)" if isfinite(demands.score_tolerance) else ""
    figure = (
        f"{len(same)} of {len(pairs)} translations have PyTorch's tokens{share}, "
        f"their scores are within {np.max(errors, initial=0.0):.1e} of its{limit}"
    )
    first = (different if few else apart)[:1]
    return Outcome(
        f"tokens, {search}",
        verdict_of(not first),
        figure,
        _describe_first(first, "PyTorch", gap),
    )


def check_against_by_hand(
    sentences: Sequence[Sentence], expected: Sequence[Answer], actual: Sequence[Answer], gap: Gap
) -> Outcome:
    """Compares the engine's greedy translations with those of the same graphs stepped by hand, bit by bit."""
    pairs = list(zip(sentences, expected, actual, strict=True))
    different = [pair for pair in pairs if not (pair[1].has_tokens_of(pair[2]) and pair[1].has_scores_of(pair[2]))]
    return Outcome(
        "engine, greedy",
        verdict_of(not different),
        f"{len(pairs) - len(different)} of {len(pairs)} translations are bitwise those of the graphs stepped by hand",
        _describe_first(different[:1], "by hand it", gap),
    )


def check_golden(
    golden: Sequence[GoldenSentence],
    sources: Sequence[tuple[int, ...]],
    actual: Sequence[Answer],
    gap: Gap,
) -> Outcome:
    """Compares with what the trained model answered when the bundle was made.

    Args:
        golden: the bundle's golden sentences.
        sources: what the bundle's tokenizer makes of their sources.
        actual: the engine's translations of their source ids.
        gap: of the bundle.
    """
    misread = [each for each, source_ids in zip(golden, sources, strict=True) if each.source_ids != source_ids]
    # The trained model's scores were not written down: both get the engine's.
    pairs = [
        (Sentence(each.source, each.source_ids), answer._replace(target_ids=each.target_ids), answer)
        for each, answer in zip(golden, actual, strict=True)
    ]
    wrong = [pair for pair in pairs if not pair[1].has_tokens_of(pair[2])]
    if misread:
        difference: str | None = f"the tokenizer reads other tokens than the trained model did: {misread[0].source}"
    else:
        difference = _describe_first(wrong[:1], "the trained model", gap)
    return Outcome(
        "golden sentences",
        verdict_of(not misread and not wrong),
        f"{len(golden) - len(misread)} of {len(golden)} are read and {len(golden) - len(wrong)} translated as by the "
        "trained model",
        difference,
    )


def _describe_first(pairs: Sequence[tuple[Sentence, Answer, Answer]], who: str, gap: Gap) -> str | None:
    return next(
        (
            describe_difference(sentence, Labeled(who, expected), Labeled(ENGINE, actual), gap)
            for sentence, expected, actual in pairs
        ),
        None,
    )


Advance = Callable[[int], object]
Check = Literal["logits", "tokens", "invariance"]
GREEDY = "greedy"
# With both logits within half of the lead that golden sentences must have at every step, none can come out otherwise.
LOGITS_TOLERANCES: dict[Precision, float] = {"fp32": 5e-4, "fp16": 0.05, "int8": 5e-4, "int8-static": 5e-4}
NO_RUN = "needs --run, the training run that the bundle was made from"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked, and how strictly.

    Attributes:
        checks: which.
        sentences: how many are compared with PyTorch.
        invariance_sentences: how many are translated in company.
        beam_size: of beam search, beside greedy search.
        length_penalty: of beam search.
        demands: on translations, compared with PyTorch's.
        logits_tolerance: how far a logit may be from PyTorch's; None: half of the lead by which golden sentences are
            decided; in 8 bits, as far as rounding moves PyTorch's own.
        companies: what batch invariance is tried in.
    """

    checks: tuple[Check, ...]
    sentences: int
    invariance_sentences: int
    beam_size: int
    length_penalty: float
    demands: Demands
    logits_tolerance: float | None
    companies: BatchMix


class Examination:
    """The checks of one bundle."""

    def __init__(
        self,
        bundle: Bundle,
        reader: Reader,
        sentences: Sequence[Sentence],
        references: References | None,
        plan: Plan,
        *,
        device: DeviceChoice = "auto",
    ) -> None:
        """Opens the bundle's graphs.

        Args:
            bundle: what is examined.
            reader: the bundle's.
            sentences: of one of its directions, none too long for it.
            references: what it was made from; None if that is not at hand.
            plan: what to check.
            device: where the graphs run.

        Raises:
            BundleError: if ONNX Runtime cannot run the graphs here.
        """
        self._bundle = bundle
        self._reader = reader
        self._compared = sentences[: plan.sentences]
        self._accompanied = sentences[: plan.invariance_sentences]
        self._references = references
        self._plan = plan
        self._sessions = open_sessions(bundle, device)
        self._by_hand = RuntimeStepper(self._sessions)
        limit = bundle.manifest.max_target_tokens
        self._searches = {
            GREEDY: SearchOptions(max_target_tokens=limit),
            f"beam {plan.beam_size}": SearchOptions(
                max_target_tokens=limit, beam_size=plan.beam_size, length_penalty=plan.length_penalty
            ),
        }

    @property
    def translations(self) -> int:
        """How many translations all checks take together; `outcomes` tells of as many."""
        plan, compared, golden = self._plan, len(self._compared), len(self._bundle.golden)
        total = compared if self._greedy_wanted else 0
        if "logits" in plan.checks and self._references is not None:
            total += compared * (2 if self._tolerance_wanted else 1)
        if "tokens" in plan.checks:
            total += 2 * compared + golden + (0 if self._references is None else 2 * compared)
        if "invariance" in plan.checks:
            total += len(self._accompanied) * len(self._searches) * (1 + len(plan.companies.batches))
        return total

    def outcomes(self, advance: Advance) -> Iterator[Outcome]:
        """Yields what each check found as soon as it has, calling `advance` with the translations that are done."""
        plan = self._plan
        greedy: list[Answer] = []
        if self._references is not None and self._greedy_wanted:
            greedy = self._references.trained.translate(self._sources, 1, plan.length_penalty, advance)
        if "logits" in plan.checks:
            yield self._check_logits(greedy, advance)
        if "tokens" in plan.checks:
            yield from self._check_tokens(greedy, advance)
        if "invariance" in plan.checks:
            yield from check_invariance(
                self._sessions,
                self._accompanied,
                self._searches,
                plan.companies,
                gap=gap_of(self._by_hand),
                advance=advance,
            )

    @property
    def _sources(self) -> list[tuple[int, ...]]:
        return [sentence.source_ids for sentence in self._compared]

    @property
    def _greedy_wanted(self) -> bool:
        """Whether PyTorch's greedy translations are needed, to be compared or to force both models along."""
        return self._references is not None and not {"logits", "tokens"}.isdisjoint(self._plan.checks)

    @property
    def _tolerance_wanted(self) -> bool:
        """Whether the tolerance of logits has to be measured first."""
        rounds = self._references is not None and self._references.rounded is not None
        return rounds and self._plan.logits_tolerance is None

    def _check_logits(self, greedy: Sequence[Answer], advance: Advance) -> Outcome:
        if self._references is None:
            return Outcome("logits", "skip", NO_RUN)
        trained, rounded = self._references
        targets = [answer.target_ids for answer in greedy]

        def compare(expected: Stepper, actual: Stepper) -> list[LogitDifference]:
            return compare_logits(expected, actual, self._compared, targets, rows=BATCH_ROWS, advance=advance)

        tolerance = Tolerance(
            LOGITS_TOLERANCES[self._bundle.manifest.precision], "half of what golden sentences are decided by"
        )
        if self._plan.logits_tolerance is not None:
            tolerance = Tolerance(self._plan.logits_tolerance, "as demanded")
        elif rounded is not None:
            tolerance = Tolerance(largest(compare(trained, rounded)), "as far as rounding moves PyTorch's own")
        reference, name = (trained, "PyTorch") if rounded is None else (rounded, "PyTorch in 8 bits")
        return check_logits(compare(reference, self._by_hand), tolerance, name, gap_of(reference))

    def _check_tokens(self, greedy: Sequence[Answer], advance: Advance) -> Iterator[Outcome]:
        options = self._searches[GREEDY]
        served = self._serve(self._sources, options, advance)
        yield from self._compare_with_pytorch(greedy, served, advance)
        gap = gap_of(self._by_hand)
        by_hand = translate_by_hand(self._by_hand, self._sources, advance)
        yield check_against_by_hand(self._compared, by_hand, served, gap)
        golden = self._bundle.golden
        sources = [
            self._reader.source_ids((each.source_language, each.target_language), each.source) for each in golden
        ]
        answers = self._serve([each.source_ids for each in golden], options, advance)
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
        """Translates as the service does."""
        engine = SyncEngine(self._sessions, BATCH_ROWS * options.rows)
        return engine.translate([SequenceSpec(source_ids, options) for source_ids in sources], BATCH_ROWS, advance)
