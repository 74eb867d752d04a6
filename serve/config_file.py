"""The file with settings, in YAML or TOML: read, checked for names that there are not, and written again.

A fault names the file and, where it can be told, the line. What values may be, `serve.settings` knows.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

TOML_SUFFIX = ".toml"
# A part of a TOML name; quoted ones, which no setting needs, are found without their line.
_TABLE = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")

Place = tuple[str, ...]


class ConfigFileError(Exception):
    """The file cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file holds.

    Attributes:
        path: where it is.
        content: its settings by name.
        lines: the line of each name, counted from 1, as far as it is known; names inside of others as their path.
    """

    path: Path
    content: dict[str, Any]
    lines: Mapping[Place, int]

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Reads a file: TOML if its name says so, else YAML.

        Raises:
            ConfigFileError: if it cannot be read or holds no settings.
        """
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == TOML_SUFFIX:
                content, lines = tomllib.loads(text), dict(_toml_lines(text))
            else:
                content, lines = yaml.safe_load(text), dict(_yaml_lines(yaml.compose(text, yaml.SafeLoader)))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, tomllib.TOMLDecodeError) as error:
            raise ConfigFileError(f"{path}: {error}") from error
        if not isinstance(content, dict):
            raise ConfigFileError(f"{path}: expected settings, one `name: value` on each line")
        return cls(path, content, lines)

    def check_names(self, names: Collection[str], place: Place = ()) -> None:
        """Checks that there are settings of all names that stand at a place.

        Args:
            names: of the settings.
            place: the names that lead there.

        Raises:
            ConfigFileError: naming the first that there is not, and one like it.
        """
        content: Any = self.content
        for name in place:
            content = content.get(name)
        for name in content if isinstance(content, dict) else ():
            if name not in names:
                at = (*place, str(name))
                line = f":{self.lines[at]}" if at in self.lines else ""
                close = get_close_matches(str(name), names, 1)
                hint = f", did you mean {close[0]}?" if close else ""
                raise ConfigFileError(f"{self.path}{line}: {'.'.join(at)}: there is no such setting{hint}")


def write_config(settings: BaseModel, *, exclude: Collection[str]) -> str:
    """Returns settings in YAML as they can be read again, but for secrets, which are only told of.

    Args:
        settings: what to write.
        exclude: names that are left out.
    """
    secrets = [name for name, value in settings if isinstance(value, SecretStr)]
    content = {
        name: {key: each.model_dump(mode="json", exclude_unset=True) for key, each in value.items()}
        if isinstance(value, dict)
        else settings.model_dump(mode="json", include={name})[name]
        for name, value in settings
        if name not in exclude and name not in secrets
    }
    hidden = "".join(f"# {name}: it is set, and not shown\n" for name in secrets)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True) + hidden


def _yaml_lines(node: yaml.Node | None, place: Place = ()) -> Iterator[tuple[Place, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*place, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _yaml_lines(value, here)


def _toml_lines(text: str) -> Iterator[tuple[Place, int]]:
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE.match(line):
            table = tuple(found[1].split("."))
            yield table, number
        elif found := _KEY.match(line):
            yield (*table, *found[1].split(".")), number
