"""What is seen while a run goes on: a table that renews itself on a terminal, elsewhere a line now and then.

Written to standard error, so that standard output holds findings only. Knows runs; called by the commands.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from loadtest.client import OK
from loadtest.measurement import Run
from loadtest.terminal_report import milliseconds

LINE_SECONDS = 10.0
# The percentiles on view are those of the last seconds, not of the whole run.
RECENT_SLICES = 5
PERCENTS = (50, 90, 99, 99.9)


class LiveView:
    """Shows runs, one after the other."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._title = ""
        self._next_line_seconds = LINE_SECONDS

    @classmethod
    @contextmanager
    def open(cls, console: Console) -> Iterator[Self]:
        """Shows runs until the block ends."""
        if not console.is_terminal:
            yield cls(console, None)
            return
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield cls(console, live)

    def begin(self, title: str) -> None:
        """Names the run that comes next."""
        self._title = title
        self._next_line_seconds = LINE_SECONDS

    def show(self, run: Run) -> None:
        """Shows how a run stands now."""
        if self._live is not None:
            self._live.update(_table(self._title, run), refresh=True)
        elif run.now_seconds >= self._next_line_seconds:
            self._next_line_seconds += LINE_SECONDS
            self._console.print(_line(self._title, run), highlight=False, soft_wrap=True)


def figures(run: Run) -> dict[str, str]:
    """Returns what is shown of a run, by name."""
    record = run.record
    past = [number for number, each in enumerate(record.plan.slices) if each.begin_seconds <= run.now_seconds]
    recent = record.tally(past[-RECENT_SLICES:])
    begin_seconds = record.plan.slices[past[-RECENT_SLICES:][0]].begin_seconds if past else 0.0
    shown = {
        "time": f"{max(0.0, run.now_seconds):.0f} of {record.plan.duration_seconds:.0f} s",
        "rate": f"{recent.sent / max(1e-9, run.now_seconds - begin_seconds):.1f}/s",
        "in flight": str(record.in_flight),
        "ok": str(record.outcomes[OK]),
    }
    for percent in PERCENTS:
        seconds = recent.latency.percentile(percent)
        shown[f"p{percent}"] = "-" if seconds is None else milliseconds(seconds)
    shown |= {f"failed: {name}": str(count) for name, count in sorted(record.outcomes.items()) if name != OK}
    if run.states:
        _, state = run.states[-1]
        shown |= {"server's rows": f"{state.rows} of {state.slots}", "server's queue": str(state.waiting)}
    return shown


def _table(title: str, run: Run) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in figures(run).items():
        table.add_row(name, value)
    return table


def _line(title: str, run: Run) -> str:
    return f"{title}: " + ", ".join(f"{name} {value}" for name, value in figures(run).items())
