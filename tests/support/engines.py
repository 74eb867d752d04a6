"""An engine with a fake model that a test steps manually."""

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions
from tests.support.fakes import FakeClock, FakeModel, fake_manifest

MAX_TARGET_TOKENS = 30
STEP_TIMEOUT_SECONDS = 100.0


@dataclass
class Bench:
    """An engine that a test steps manually, with its parts."""

    slots: int = 4
    queue_limit: int = 1000
    prefill_token_budget: int = 1000
    prefetched: int = 0
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, model="tiny")
        self.scheduler = Scheduler(self.slots, self.queue_limit, self.prefill_token_budget, self.metrics, self.clock)
        self.model = FakeModel(self.slots, prefetched=self.prefetched)
        self.engine = self.make_engine(self.model)
        self.finished: list[DecodingSequence] = []

    def make_engine(self, model: FakeModel) -> Engine:
        """Returns an engine on this bench's scheduler."""
        return Engine(
            model,
            self.scheduler,
            self.metrics,
            fake_manifest(MAX_TARGET_TOKENS),
            step_timeout_seconds=STEP_TIMEOUT_SECONDS,
            clock=self.clock,
        )

    def submit(
        self,
        *source_ids: int,
        limit: int = MAX_TARGET_TOKENS,
        options: SearchOptions | None = None,
        deadline_seconds: float | None = None,
        on_token: Callable[[int], None] | None = None,
    ) -> DecodingSequence:
        """Submits one sequence, greedy by default."""
        chosen = options or SearchOptions(max_target_tokens=limit)
        sequence = DecodingSequence(source_ids, chosen, deadline_seconds, self.finished.append, on_token)
        self.scheduler.submit([sequence])
        return sequence

    def step(self, count: int = 1) -> None:
        """Makes this number of steps."""
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
        """Returns the value of a metric."""
        return self.registry.get_sample_value(f"dragoman_{name}", {"model": "tiny", **labels})
