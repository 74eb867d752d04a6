"""The tables of `dragoman profile`, in Markdown: phases, types of operators, heaviest nodes. Knows figures only."""

from collections.abc import Sequence

from benchmarks.profile_result import ProfileResult
from benchmarks.profiling import NodeTime
from benchmarks.step_phases import PHASES, Quantiles
from loadtest.markdown_table import markdown_table


def format_profile(results: Sequence[ProfileResult], heaviest: int) -> str:
    """Returns all tables.

    Args:
        results: for each number of rows.
        heaviest: how many nodes are named.
    """
    tables = [_phases(results), _operators(results)]
    return "\n\n".join([*tables, _nodes(results, heaviest)] if heaviest else tables)


def _phases(results: Sequence[ProfileResult]) -> str:
    heading = ["phase of a step: median / p99, us; share", *(_rows_of(result) for result in results)]
    found = [{phase.name: phase for phase in result.steps.phases} for result in results]
    lines = []
    for name in PHASES.values():
        cells = [
            f"{_times(phases[name].times)}; {phases[name].share:.1%}{_occurrence(phases[name].occurrence)}"
            if name in phases
            else "-"
            for phases in found
        ]
        lines.append([name, *cells])
    lines.append(["whole step", *(_times(result.steps.whole) for result in results)])
    lines.append(["between decoder runs, no run", *(_times(result.steps.gaps) for result in results)])
    return markdown_table(heading, [line for line in lines if set(line[1:]) != {"-"}])


def _operators(results: Sequence[ProfileResult]) -> str:
    found = [{each.operator: each for each in result.decoder.operators} for result in results]
    heading = ["operator of the decoder: us a step; share", "nodes", *(_rows_of(result) for result in results)]
    lines = [
        [name, str(operators.nodes), *(f"{each[name].microseconds:,.0f}; {each[name].share:.1%}" for each in found)]
        for name, operators in found[-1].items()
    ]
    between = [f"{result.decoder.between_microseconds:,.0f}" for result in results]
    return markdown_table(heading, [*lines, ["between nodes", "", *between]])


def _nodes(results: Sequence[ProfileResult], heaviest: int) -> str:
    found = [{node.name: node for node in result.decoder.nodes} for result in results]
    heading = ["heaviest nodes: us a step; share", "operator", "output", *(_rows_of(result) for result in results)]
    lines = []
    for node in results[-1].decoder.nodes[:heaviest]:
        cells = [_cell(nodes[node.name]) for nodes in found]
        lines.append([node.name, node.operator, node.output, *cells])
    return markdown_table(heading, lines, words=3)


def _cell(node: NodeTime) -> str:
    return f"{node.microseconds:,.0f}; {node.share:.1%}"


def _rows_of(result: ProfileResult) -> str:
    return f"{result.rows} row{'' if result.rows == 1 else 's'}"


def _times(times: Quantiles) -> str:
    return f"{times.median:,.0f} / {times.p99:,.0f}"


def _occurrence(share: float) -> str:
    return "" if share == 1 else f" (in {share:.0%} of steps)"
