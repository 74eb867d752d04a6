"""Under which conditions figures were obtained: command, machine, versions and date.

Called by the commands that fill in documents, which know what computed.

Text with marked places that a command fills in, so that figures in a document are those that were measured.

A place named table lies between `<!-- table -->` and `<!-- /table -->`. Knows nothing of what is filled in.

SVG drawings by matplotlib, the same bytes for the same data.

Figures are made without pyplot, which would keep them all; text stays text, so that it can be searched.
"""

import os
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import matplotlib as mpl
from matplotlib.figure import Figure
from pydantic import BaseModel, SecretStr

from model.versions import installed_versions


class MarkError(Exception):
    """A text has not exactly one place of a name."""


def fill(text: str, name: str, content: str) -> str:
    """Returns the text with the content, in lines of its own, in a place; whatever was there before is gone.

    Raises:
        MarkError: if the text does not have exactly one such place.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if text.count(begin) != 1 or text.count(end) != 1 or end not in rest:
        raise MarkError(f"expected {begin} and, behind it, {end}, each once")
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"


@contextmanager
def drawing(path: Path, inches: tuple[float, float]) -> Iterator[Figure]:
    """Yields an empty figure of a width and a height; writes it when the block ends."""
    style = mpl.rc_context(
        {
            # In place of a random number in the names of clip paths.
            "svg.hashsalt": "dragoman",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.titlesize": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
        }
    )
    with style:
        figure = Figure(figsize=inches, layout="constrained", facecolor="white")
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


@dataclass(frozen=True, slots=True)
class Provenance:
    """What has to be known to judge a figure, and to obtain it again.

    Attributes:
        command: what was called.
        machine: its processor, how many CPUs it has, and how many threads computed.
        versions: of Python and of the libraries that matter.
        date: when, in UTC, as in 2026-11-21.
    """

    command: str
    machine: str
    versions: str
    date: str

    @classmethod
    def now(
        cls,
        command: str,
        libraries: Iterable[str],
        threads: str,
        environments: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Self:
        """Returns the conditions of this process.

        Args:
            command: what was called.
            libraries: those that matter; one that is not installed is left out.
            threads: which threads compute, and how many, as in `PyTorch threads: 2`.
            environments: the versions of other environments that computed as well, by their names.
        """
        versions = {"Python": platform.python_version(), **installed_versions(libraries)}
        return cls(
            command,
            f"{_processor()}, CPUs: {os.cpu_count()}, {threads}",
            "; ".join(
                [_listed(versions), *(f"{name}: {_listed(each)}" for name, each in (environments or {}).items())]
            ),
            datetime.now(UTC).date().isoformat(),
        )

    def __str__(self) -> str:
        return f"Measured by `{self.command}` ({self.machine}; {self.versions}; {self.date})."


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def command_line(name: str, command: BaseModel, positional: str | None = None) -> str:
    """Returns what calls a command with the same options again; defaults and secrets are left out.

    Args:
        name: of the command.
        command: with the options that were given.
        positional: the field that has no name on the command line.
    """
    return shlex.join(["dragoman", *name.split(), *_words(command, _defaults(command), "", positional)])


def _words(section: BaseModel, usual: Mapping[str, object], prefix: str, positional: str | None) -> Iterator[str]:
    for field, value in section:
        name = f"{prefix}{field.replace('_', '-')}"
        if isinstance(value, BaseModel):
            default = usual[field]
            usual_section = dict(default) if isinstance(default, BaseModel) else _defaults(value)
            yield from _words(value, usual_section, f"{name}.", None)
        elif value == usual[field] or isinstance(value, SecretStr):
            continue
        elif isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            for given in value if isinstance(value, list | tuple) else [value]:
                yield from () if field == positional else (f"--{name}",)
                yield str(given)


def _defaults(section: BaseModel) -> dict[str, object]:
    return {name: info.default for name, info in type(section).model_fields.items()}


def _processor() -> str:
    """Returns the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
