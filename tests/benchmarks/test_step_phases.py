"""Spans of steps become the times of phases, and the gaps between decoder runs."""

from benchmarks.profiling import Quantiles, StepTimes, gaps_us
from benchmarks.systems.engine import Span

# Two steps: the first admits and prefills, the second only decodes. Nanoseconds.
STEPS = [
    Span("admit", 0, 1_000, 1_000),
    Span("encoder", 2_000, 6_000, 4_000),
    Span("prefill", 1_000, 7_000, 2_000),
    Span("decoder", 7_000, 17_000, 10_000),
    Span("top-k", 18_000, 20_000, 2_000),
    Span("select", 17_000, 21_000, 2_000),
    Span("step", 0, 22_000, 1_000),
    Span("admit", 30_000, 33_000, 3_000),
    Span("decoder", 33_000, 43_000, 10_000),
    Span("step", 30_000, 45_000, 2_000),
]


def test_phases_come_in_the_order_of_a_step_with_their_share_of_all_steps() -> None:
    phases = StepTimes.of(STEPS).phases
    assert [(phase.name, phase.occurrence, round(37 * phase.share, 6)) for phase in phases] == [
        ("admit", 1, 4),
        ("prefill: encoder run", 0.5, 4),
        ("prefill: around it", 0.5, 2),
        ("decode: decoder run", 1, 20),
        ("select: top-k run", 0.5, 2),
        ("select: around it", 0.5, 2),
        ("rest", 1, 3),
    ]


def test_times_of_a_phase_are_those_of_the_steps_that_have_it() -> None:
    phases = {phase.name: phase for phase in StepTimes.of(STEPS).phases}
    assert phases["admit"].times == Quantiles.of([1, 3])
    assert phases["prefill: encoder run"].times == Quantiles(4, 4)


def test_calls_of_a_phase_in_one_step_are_added_up() -> None:
    again = [*STEPS[:6], Span("encoder", 21_000, 24_000, 3_000), Span("step", 0, 25_000, 1_000), *STEPS[7:]]
    phases = {phase.name: phase for phase in StepTimes.of(again).phases}
    assert phases["prefill: encoder run"].times == Quantiles(7, 7)


def test_a_whole_step_includes_all_phases() -> None:
    assert StepTimes.of(STEPS).whole == Quantiles.of([22, 15])


def test_a_gap_excludes_other_runs_and_includes_time_between_steps() -> None:
    assert gaps_us(STEPS) == [14.0]
