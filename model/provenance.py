"""Provenance of measured figures, and marked places in documents.

A command fills the text between `<!-- NAME -->` and `<!-- /NAME -->`, so that documents hold measured figures.
"""

import os
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import BaseModel, SecretStr

from dragoman.model.versions import installed_versions

# Instructions that name the speed of a processor, the fastest first; virtual machines hide its model.
INSTRUCTIONS = {"amx_int8": "AMX", "avx512_vnni": "AVX-512", "avx2": "AVX2"}


class MarkError(Exception):
    """A text does not have exactly one place of this name."""


def fill(text: str, name: str, content: str) -> str:
    """Returns the text with the lines of a place replaced; raises MarkError unless there is exactly one such place."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if text.count(begin) != 1 or text.count(end) != 1 or end not in rest:
        raise MarkError(f"expected {begin} followed by {end}, each once")
    lines = content.strip("\n")
    return f"{before}{begin}\n\n{lines}\n\n{end}{after}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The conditions of a measurement: command line, processor and threads, library versions, and the UTC date."""

    command: str
    machine: str
    versions: str
    date: str

    @classmethod
    def now(cls, command: str, libraries: Iterable[str], threads: str) -> Self:
        """Returns the conditions of this process.

        Libraries that are not installed are skipped. `threads` has kind and number, as in `PyTorch threads: 2`.
        """
        versions = installed_versions(["dragoman"]) | {"Python": platform.python_version()}
        versions |= installed_versions(libraries)
        return cls(
            command,
            f"{processor()}, CPUs: {os.cpu_count()}, {threads}",
            ", ".join(f"{name} {version}" for name, version in versions.items()),
            datetime.now(UTC).date().isoformat(),
        )

    def __str__(self) -> str:
        return f"Measured by `{self.command}` ({self.machine}; {self.versions}; {self.date})."


def command_line(name: str, command: BaseModel, positional: str | None = None) -> str:
    """Returns a command that repeats one, without defaults and secrets; `positional` is the field without a name."""
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


def processor() -> str:
    """Returns name and best instructions of the processor if the system reports them, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = found.get("flags", "").split()
    instructions = next((f" with {name}" for flag, name in INSTRUCTIONS.items() if flag in flags), "")
    return f"{found.get('model name') or platform.processor() or platform.machine()}{instructions}"
