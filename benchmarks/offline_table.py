"""The tables of `dragoman bench offline`: one for each precision of a model, in Markdown. Knows figures only."""

from collections.abc import Sequence

from benchmarks.harness.spread import format_figures, ratio
from benchmarks.offline_results import SEARCHES, OfflineModelResult, OfflineResult, best

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
