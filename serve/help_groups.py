"""The `--help` of a command with many options: in groups, with defaults and environment variables.

The library behind commands groups nested records only, and those of a command are flat so that flags are short. Used by
`serve.command`.
"""

from argparse import ArgumentParser
from collections.abc import Mapping

from pydantic_settings import BaseSettings

# What the library says of an option that is absent by default; what that means, its description tells.
_NO_DEFAULT = " (default: None)"


def group_options(parser: ArgumentParser, settings: type[BaseSettings], groups: Mapping[str, str]) -> None:
    """Puts the options of a parser into groups.

    Args:
        parser: has one option for each setting.
        settings: the settings in their order.
        groups: the title of the group that begins with a setting; the first setting begins one.
    """
    prefix = settings.model_config.get("env_prefix", "")
    actions = {action.dest: action for action in parser._actions}  # noqa: SLF001 - there is no other way to them
    title = ""
    members: dict[str, list[str]] = {}
    for name in settings.model_fields:
        title = groups.get(name, title)
        members.setdefault(title, []).append(name)
    for title, names in members.items():
        group = parser.add_argument_group(title)
        for name in names:
            action = actions[name]
            action.help = f"{(action.help or '').replace(_NO_DEFAULT, '')} [{prefix}{name.upper()}]"
            if not action.option_strings:
                continue  # positional arguments have a group of their own
            parser._optionals._group_actions.remove(action)  # noqa: SLF001
            group._group_actions.append(action)  # noqa: SLF001
