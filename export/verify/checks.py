"""All checks of one bundle, in their order, and how much work they are. `dragoman verify` shows what they find.

Knows neither texts' languages nor torch: the PyTorch model comes as `References`, or not at all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from export.verify.answer import Answer, Sentence
from export.verify.graph_decoder import BATCH_ROWS, RuntimeStepper, translate_by_hand
from export.verify.invariance import Companies, check_invariance
from export.verify.logits import Apart, Tolerance, check_logits, compare_logits, largest
from export.verify.outcome import Outcome
from export.verify.reader import Reader
from export.verify.stepped_engine import SteppedEngine
from export.verify.stepper import References, Stepper, gap_of
from export.verify.tokens import Demands, check_against_by_hand, check_against_pytorch, check_golden
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Precision
from serve.runtime.device_choice import DeviceChoice
from serve.runtime.model_sessions import open_sessions
from serve.scheduler.sequence import Wish
from serve.search.options import SearchOptions

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
    companies: Companies


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

        def compare(expected: Stepper, actual: Stepper) -> list[Apart]:
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
        engine = SteppedEngine(self._sessions, BATCH_ROWS * options.rows)
        return engine.translate([Wish(source_ids, options) for source_ids in sources], BATCH_ROWS, advance)
