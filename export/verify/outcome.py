"""What a check found: one line of a report, and the first difference if it failed."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "FAIL", "skip"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check.

    Attributes:
        check: its name.
        verdict: whether the bundle keeps the promise, or why nobody knows.
        figure: what was measured, and what was demanded.
        difference: the first one, if the check failed.
    """

    check: str
    verdict: Verdict
    figure: str
    difference: str | None = None

    def __str__(self) -> str:
        """Returns the line of the report, and a second one for the difference."""
        line = f"{self.verdict}  {self.check:24} {self.figure}"
        return line if self.difference is None else f"{line}\n      first difference: {self.difference}"


def verdict_of(passed: bool) -> Verdict:
    """Returns the word for it."""
    return "pass" if passed else "FAIL"
