"""The `--help` of every command: placeholders, defaults, groups and a short usage line.

pydantic-settings builds an argparse parser that shows Python types. `arrange_help` replaces what this parser shows,
and lets an option with `json_schema_extra={"without_value": "..."}` stand without a value. The placeholder of an
option comes from `json_schema_extra={"placeholder": "..."}` of its field, else from the last word of the name, else
from the type. A class may start groups of options with `HELP_GROUPS: ClassVar[dict[str, str]]`: it maps the first
field of a group to the title, in the order of the help; the fields that follow belong to the same group.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import NoDecode

from dragoman.tables import read_table

MAX_COLUMNS = 100
# Longer lists of a default may be wrapped, and longer lists of choices follow the description; in characters.
_LONG_LIST = 40
_LONG_CHOICES = 70
# Placeholders of numbers and of text by the last word of a field's name.
_PLACEHOLDERS: dict[str, dict[str, str]] = read_table(__file__, "placeholders.yaml")
# The same for paths that are folders; other paths are FILE. A path whose default has a suffix is a file, too.
_FOLDERS = {"archives", "bundle", "ctranslate2", "dir", "folder", "marian", "nginx", "out", "run", "scores"}
_STATED_DEFAULT = re.compile(r"\bdefault:", re.IGNORECASE)
# The default stands at the end of a description, as in "Default: any" and "; default: any".
_LAST_DEFAULT = re.compile(r"[.;] default: ([^.;()]+)$", re.IGNORECASE)


class HelpFormatter(argparse.HelpFormatter):
    """Fills each paragraph of the description, and shows an option once per name with its placeholder at the end."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._width = min(self._width, MAX_COLUMNS)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # A default stays on one line with its label.
        lines = _wrap(text.replace("default: ", "default:\0"), width)
        return [line.replace("\0", " ") for line in lines]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (_wrap(paragraph, width - len(indent)) for paragraph in text.split("\n\n"))
        return "\n\n".join("\n".join(f"{indent}{line}" for line in lines) for lines in paragraphs)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        # --beam-size is short for --options.beam-size.
        short = [name for name in action.option_strings if "." not in name]
        names = ", ".join(short or action.option_strings)
        return names if action.nargs == 0 else f"{names} {action.metavar}"


def _wrap(text: str, width: int) -> list[str]:
    # The name of an option is never split.
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def arrange_help(parser: argparse.ArgumentParser, command: type[BaseModel]) -> None:
    """Rewrites the help of a command's parser."""
    actions = {action.dest: action for action in parser._actions}  # noqa: SLF001 - argparse has no public access
    for name, field, default in options_of(command):
        action = actions[name]
        action.help = _description(field, default, positional=not action.option_strings)
        extra = field.json_schema_extra
        if isinstance(extra, dict) and "without_value" in extra:
            action.nargs, action.const = "?", extra["without_value"]
        if action.option_strings and action.nargs != 0:
            shown = placeholder(name, field)
            if len(shown) > _LONG_CHOICES and (choices := re.fullmatch(r"\{(.*)\}(.*)", shown)):
                shown = f"NAME{choices[2]}"
                action.help = f"{action.help}; choices: {choices[1].replace(',', ', ')}"
            action.metavar = shown
    actions["help"].help = "Show this help and exit"
    _group(parser, command, actions)
    titles = {"positional arguments": "arguments", "options options": "search options"}
    for group in parser._action_groups:  # noqa: SLF001
        group.title = titles.get(str(group.title), group.title)
    parser.usage = _usage(parser)


def placeholder(name: str, field: FieldInfo) -> str:
    """Returns the placeholder of an option's value, as in SECONDS; `name` has the names of the sections before it."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "placeholder" in extra:
        return str(extra["placeholder"])
    is_path_file = isinstance(field.default, Path) and bool(field.default.suffix)
    text = _of_type(field.annotation, name.rpartition(".")[2].rpartition("_")[2], is_file=is_path_file)
    # These values may contain commas: the option is repeated.
    return text.removesuffix(",...") if NoDecode in field.metadata else text


def _of_type(annotation: Any, word: str, *, is_file: bool) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"{{{','.join(map(str, arguments))}}}"
    if origin in (Annotated, Union, UnionType, tuple, list):
        kinds = arguments if origin in (Union, UnionType) else arguments[:1]
        names = (_of_type(kind, word, is_file=is_file) for kind in kinds if kind is not type(None))
        return "|".join(dict.fromkeys(names)) + (",..." if origin in (tuple, list) else "")
    return {
        int: _PLACEHOLDERS["numbers"].get(word, "N"),
        float: _PLACEHOLDERS["numbers"].get(word, "NUMBER"),
        Path: "FOLDER" if word in _FOLDERS and not is_file else "FILE",
        str: _PLACEHOLDERS["text"].get(word, "TEXT"),
        SecretStr: _PLACEHOLDERS["text"].get(word, "TEXT"),
    }.get(annotation, "JSON")


def options_of(model: type[BaseModel], default: Any = None, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Yields name, field and default of every option; the name of an option in a section has that of the section."""
    for name, field in model.model_fields.items():
        own = getattr(default, name, field.default)
        sections = list(_sections(field.annotation))
        if not sections:
            yield f"{prefix}{name}", field, own
            continue
        # A section may be one of several models: the first that has a field describes it.
        options: dict[str, tuple[FieldInfo, Any]] = {}
        for section in sections:
            for key, option, value in options_of(
                section, own if isinstance(own, section) else None, f"{prefix}{name}."
            ):
                options[key] = (
                    (_joined(options[key][0], option), options[key][1]) if key in options else (option, value)
                )
        yield from ((key, option, value) for key, (option, value) in options.items())


def _joined(first: FieldInfo, second: FieldInfo) -> FieldInfo:
    """Returns the field of one model, with the choices that the field of another model adds."""
    choices = [get_args(field.annotation) for field in (first, second) if get_origin(field.annotation) is Literal]
    if len(choices) < 2:  # noqa: PLR2004 - not both are choices
        return first
    joined = copy(first)
    joined.annotation = Literal[tuple(dict.fromkeys([*choices[0], *choices[1]]))]  # type: ignore[assignment]
    return joined


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType, Annotated):
        for argument in get_args(annotation):
            yield from _sections(argument)


def _description(field: FieldInfo, default: Any, *, positional: bool) -> str:
    """Returns what `--help` shows of an option, with its default, for argparse, which interprets `%`."""
    text = _LAST_DEFAULT.sub(r" (default: \1)", (field.description or "").removesuffix("."))
    if default is PydanticUndefined:
        note = "" if positional else " (required)"
    else:
        shown = _shown(default)
        note = f" (default: {shown})" if shown and not _STATED_DEFAULT.search(text) else ""
    first = text.partition(" ")[0]
    if re.fullmatch(r"[a-z-]+;?", first):  # not gRPC, and no value with its meaning, as in `auto: ...`
        text = text[0].upper() + text[1:]
    return f"{text}{note}".replace("%", "%%")


def _shown(value: Any) -> str:
    """Returns a value as an option takes it; empty if there is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        items = [_shown(item) for item in value]
        joined = ",".join(items)
        return joined if len(joined) <= _LONG_LIST else ", ".join(items)  # so that it can be wrapped
    if isinstance(value, dict):
        return ""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _group(parser: argparse.ArgumentParser, command: type[BaseModel], actions: dict[str, argparse.Action]) -> None:
    starts = {name: title for cls in command.__mro__ for name, title in vars(cls).get("HELP_GROUPS", {}).items()}
    groups = {title: parser.add_argument_group(title) for title in dict.fromkeys(starts.values())}
    options = parser._optionals  # noqa: SLF001
    title = ""
    for name in command.model_fields:
        title = starts.get(name, title)
        action = actions[name]
        if not title or action not in options._group_actions:  # noqa: SLF001
            continue  # a positional argument, or a section with a group of its own
        options._group_actions.remove(action)  # noqa: SLF001
        groups[title]._group_actions.append(action)  # noqa: SLF001
    # The flat options come before the sections.
    all_groups = parser._action_groups  # noqa: SLF001
    sections = [group for group in all_groups[2:] if group not in groups.values()]
    all_groups[2:] = [*groups.values(), *sections]


def _usage(parser: argparse.ArgumentParser) -> str:
    forms = {"?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]"}
    required, positional = [], []
    for action in parser._actions:  # noqa: SLF001
        if not action.option_strings:
            positional.append(forms.get(str(action.nargs), "{0}").format(action.metavar))
        elif str(action.help).endswith("(required)"):
            required.append(f"{action.option_strings[0]} {action.metavar}")
    return " ".join(["%(prog)s", *required, "[OPTION ...]", *positional])
