"""Configuration files, in YAML or TOML. An error of a file names the file and, if possible, the line."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from dragoman.model.errors import reason_of

TOML_SUFFIX = ".toml"
# Names in TOML without quotes: no setting needs any. Quoted names are read, but their lines are not known.
_TABLE = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")

KeyPath = tuple[str, ...]


class ConfigFileError(Exception):
    """An invalid file; the message has the path, the line if known, and the reason."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a file, and the line of each name from 1, if known; keys are paths, as in ("models", "en-de")."""

    path: Path
    content: dict[str, Any]
    lines: Mapping[KeyPath, int]

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Reads a file, TOML if its name ends in .toml, else YAML; raises ConfigFileError if it is invalid."""
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == TOML_SUFFIX:
                content, lines = tomllib.loads(text), dict(_toml_lines(text))
            else:
                content, lines = yaml.safe_load(text), dict(_yaml_lines(yaml.compose(text, yaml.SafeLoader)))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigFileError(f"{path}: {reason_of(error)}") from error
        if not isinstance(content, dict):
            raise ConfigFileError(f"{path}: expected a mapping of settings, one `name: value` per line")
        return cls(path, content, lines)

    def check_names(self, names: Collection[str], path: KeyPath = ()) -> None:
        """Checks the names of a mapping; raises ConfigFileError for the first unknown one, with the closest known."""
        content: Any = self.content
        for name in path:
            content = content.get(name)
        for name in content if isinstance(content, dict) else ():
            if name not in names:
                at = (*path, str(name))
                line = f":{self.lines[at]}" if at in self.lines else ""
                close = get_close_matches(str(name), names, 1)
                hint = f", did you mean {close[0]}?" if close else ""
                raise ConfigFileError(f"{self.path}{line}: {'.'.join(at)}: unknown setting{hint}")


def write_config(settings: BaseModel, *, exclude: Collection[str]) -> str:
    """Returns settings as YAML that `ConfigFile.read` accepts; a secret becomes a comment with its name."""
    secrets = [name for name, value in settings if isinstance(value, SecretStr)]
    content = {
        name: {key: item.model_dump(mode="json", exclude_unset=True) for key, item in value.items()}
        if isinstance(value, dict)
        else settings.model_dump(mode="json", include={name})[name]
        for name, value in settings
        if name not in exclude and name not in secrets
    }
    hidden = "".join(f"# {name}: set, not shown\n" for name in secrets)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True) + hidden


def _yaml_lines(node: yaml.Node | None, path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _yaml_lines(value, here)


def _toml_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = tuple(match[1].split("."))
            yield table, number
        elif match := _KEY.match(line):
            yield (*table, *match[1].split(".")), number
