"""The table of `dragoman bench graphs`: a row for each system of a model, in Markdown. Knows figures only."""

from collections.abc import Mapping

from benchmarks.graph_results import ModelResult, SystemResult
from benchmarks.harness.spread import Spread, format_ratio, ratio


def format_model(result: ModelResult) -> str:
    """Returns a heading, the table, and the signature of BLEU if it was measured."""
    tasks = list(result.systems[0].rounds[0].tokens_per_second)
    measured = next((system.bleu for system in result.systems if system.bleu is not None), None)
    heading = ["system", "size, MB", "load, s", "memory, MB", *(_rows_of(task) for task in tasks)]
    heading += [] if measured is None else ["BLEU"]
    by_name = {system.name: system for system in result.systems}
    lines = [_row(heading), _row(["---", *["---:"] * (len(heading) - 1)])]
    lines += [_row(_cells(system, by_name, tasks)) for system in result.systems]
    parts = [f"**{result.name}**: {result.description}.", "\n".join(lines)]
    return "\n\n".join(parts if measured is None else [*parts, f"BLEU: `{measured.signature}`."])


def _cells(system: SystemResult, by_name: Mapping[str, SystemResult], tasks: list[str]) -> list[str]:
    load = Spread.of([each.load_seconds for each in system.rounds])
    memory = Spread.of([each.peak_bytes for each in system.rounds])
    peer = by_name.get(system.peer) if system.peer else None
    speeds = [format_speed(_speeds(system, task), None if peer is None else _speeds(peer, task)) for task in tasks]
    cells = [system.name, f"{system.size_bytes / 1e6:,.1f}", f"{load.median:.2f}", f"{memory.median / 1e6:,.0f}"]
    return [*cells, *speeds, *([] if system.bleu is None else [str(system.bleu.system)])]


def format_speed(ours: list[float], theirs: list[float] | None) -> str:
    """Returns the median of figures and, if there is a peer, how many times those of the peer they are.

    Args:
        ours: tokens per second, round by round.
        theirs: those of the peer.

    Returns:
        As in `997, 1.66x (1.61-1.70)`: median, median of the ratios, their smallest and their largest.
    """
    median = f"{Spread.of(ours).median:,.0f}"
    return median if theirs is None else f"{median}, {format_ratio(ratio(ours, theirs))}"


def _speeds(system: SystemResult, task: str) -> list[float]:
    return [each.tokens_per_second[task] for each in system.rounds]


def _rows_of(task: str) -> str:
    return f"tokens/s, {task} row{'' if task == '1' else 's'}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
