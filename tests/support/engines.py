"""An engine with a fake model that a test steps manually, and the answers of sequences that run alone."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from prometheus_client import CollectorRegistry

from dragoman.serve.bundle.shortlist import Shortlist
from dragoman.serve.engine.engine import Engine
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, SequenceState
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.options import SearchOptions
from tests.support.fakes import CONTINUING_IDS, FakeClock, FakeModel, fake_manifest

MAX_TARGET_TOKENS = 30
STEP_TIMEOUT_SECONDS = 100.0
Answer = tuple[tuple[int, ...], float, FinishReason]


class SteppedEngine(Protocol):
    """An engine that a test steps."""

    def step(self) -> None:
        """Makes one step."""


@dataclass
class AnyBench:
    """What a test does with an engine that it steps manually."""

    scheduler: RequestScheduler = field(init=False)
    engine: SteppedEngine = field(init=False)
    registry: CollectorRegistry = field(init=False, default_factory=CollectorRegistry)
    finished: list[DecodingSequence] = field(init=False, default_factory=list)

    def submit(
        self,
        *source_ids: int,
        limit: int = MAX_TARGET_TOKENS,
        options: SearchOptions | None = None,
        deadline_seconds: float | None = None,
        on_token: Callable[[int], None] | None = None,
        fairness_key: Hashable = None,
    ) -> DecodingSequence:
        """Submits one sequence, greedy by default."""
        chosen = options or SearchOptions(max_target_tokens=limit)
        group = SequenceGroup(self.finished.extend, deadline_seconds, fairness_key=fairness_key)
        sequence = DecodingSequence(source_ids, chosen, group, on_token)
        self.scheduler.submit([sequence])
        return sequence

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.step()

    def run(self) -> None:
        """Steps until no work is left; fails after a number of steps that no test needs."""
        for _ in range(2000):
            if self.scheduler.idle:
                return
            self.engine.step()
        raise AssertionError("some sequence never ends")

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"dragoman_{name}", {"model": "tiny", **labels})


@dataclass
class Bench(AnyBench):
    """An engine that a test steps manually, with its parts."""

    slots: int = 4
    queue_limit: int = 1000
    prefill_token_budget: int = 1000
    clock: FakeClock = field(default_factory=FakeClock)
    shortlist: Shortlist | None = None

    scheduler: Scheduler = field(init=False)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.registry, model="tiny")
        self.scheduler = Scheduler(self.slots, self.queue_limit, self.prefill_token_budget, self.metrics, self.clock)
        self.model = FakeModel(self.slots)
        self.engine = self.make_engine(self.model)

    def make_engine(self, model: FakeModel) -> Engine:
        return Engine(
            model,
            self.scheduler,
            self.metrics,
            fake_manifest(MAX_TARGET_TOKENS),
            continuing_ids=CONTINUING_IDS,
            shortlist=self.shortlist,
            step_timeout_seconds=STEP_TIMEOUT_SECONDS,
            clock=self.clock,
        )


def answer(sequence: DecodingSequence) -> Answer:
    assert sequence.state is SequenceState.FINISHED
    assert sequence.error is None
    return sequence.best.target_ids, sequence.best.score, sequence.best.finish_reason


@cache
def alone(source_ids: tuple[int, ...], limit: int = MAX_TARGET_TOKENS) -> Answer:
    """Returns the answer of greedy search for a sequence that is alone in its engine."""
    bench = Bench(slots=1)
    sequence = bench.submit(*source_ids, limit=limit)
    bench.run()
    return answer(sequence)


def assert_alone(*sequences: DecodingSequence) -> None:
    """Asserts that the answers of greedy search are bitwise those of each sequence alone."""
    for sequence in sequences:
        assert answer(sequence) == alone(sequence.source_ids, sequence.options.max_target_tokens)
