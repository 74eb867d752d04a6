"""The plan of a benchmark: its parameters, with defaults that a YAML file and `KEY=VALUE` settings override.

`dragoman bench NAME` measures the class `NamePlan` of the module NAME in `benchmarks`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import yaml
from pydantic import Field, ValidationError

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.report import Report
from dragoman.model.config import Section
from dragoman.model.errors import reason_of

Positive = Annotated[int, Field(gt=0)]
# CPU numbers, from 0.
Cpus = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


class BenchmarkPlan(Section):
    """The parameters of a benchmark; a subclass adds parameters, measures, and names the libraries to report."""

    libraries: ClassVar[tuple[str, ...]]

    rounds: int = Field(5, ge=1, description="turns of each system")

    def measure(self) -> Report:
        """Measures this plan; raises BenchmarkError if a field cannot be used or a system fails."""
        raise NotImplementedError

    @classmethod
    def read(cls, path: Path | None, settings: Iterable[str]) -> Self:
        """Returns the defaults, overridden by a YAML file and then by settings such as `random.d_model=64`.

        Raises BenchmarkError if the file, a setting or a value is invalid.
        """
        values = cls._defaults()
        for changes in ([] if path is None else [_read(path)]) + [_parse(setting) for setting in settings]:
            values = _merge(values, changes)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise BenchmarkError("; ".join(_explain(dict(problem)) for problem in error.errors())) from error

    @classmethod
    def describe(cls) -> str:
        """Returns the defaults as a YAML file; a comment describes each field."""
        defaults = cls._defaults()
        lines = []
        for name, field in cls.model_fields.items():
            lines.append(f"# {field.description}{' (required)' if field.is_required() else ''}")
            lines.append(f"{name}: {json.dumps(defaults.get(name))}")  # JSON is YAML
        return "\n".join(lines)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return cls.model_construct().model_dump(mode="json", warnings=False)  # without the required fields


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BenchmarkError(f"plan: {path}: expected a YAML file: {reason_of(error)}") from error
    if not isinstance(content, dict):
        raise BenchmarkError(f"plan: {path}: expected a mapping of fields")
    return content


def _parse(setting: str) -> dict[str, Any]:
    name, equals, text = setting.partition("=")
    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BenchmarkError(f"set: {setting}: expected a value in YAML: {error}") from error
    if not name or not equals:
        raise BenchmarkError(f"set: {setting}: expected KEY=VALUE")
    for key in reversed(name.split(".")):
        value = {key: value}
    return dict(value)


def _merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values with changes; mappings are merged, everything else is replaced."""
    merged = dict(values)
    for name, change in changes.items():
        old = merged.get(name)
        merged[name] = _merge(old, change) if isinstance(old, dict) and isinstance(change, dict) else change
    return merged


def _explain(problem: Mapping[str, Any]) -> str:
    given = "" if problem["type"] == "missing" else f", got {problem['input']!r}"
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}{given}"
