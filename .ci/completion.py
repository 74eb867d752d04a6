"""Writes the completions of shells, `serve/commands/completion.*`: `make tables`. Needs the libraries of every command.

shtab creates them from the parsers. `files` yields their texts. A field is completed by the placeholder of its value.
"""

import re
from argparse import Action, ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shtab

from dragoman import command_line
from dragoman.serve.commands import completion
from dragoman.serve.commands.help import options_of, placeholder
from dragoman.serve.commands.run import make_parser

# Names of installed models, of their bundles and of their pairs of languages, for sh, bash and zsh.
INSTALLED = """\
find "${DRAGOMAN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dragoman}/names" -name "*.json" -exec sed -n \
-e "s/^ *\\"name\\": \\"\\(.*\\)\\",*$/\\1/p" -e "s/^ *\\"model\\": \\"\\(.*\\)\\",*$/\\1/p" \
-e "s/^ *\\"\\([a-zA-Z_]*-[a-zA-Z_]*\\)\\",*$/\\1/p" {} + 2>/dev/null | sort -u"""
# A model may also be that of a folder.
PREAMBLES = {
    "bash": f"""
_dragoman_models() {{
  local name
  while IFS= read -r name; do
    if [[ $name == "$1"* ]]; then printf '%q\\n' "$name"; fi
  done < <({INSTALLED})
  compgen -d -- "$1"
}}""",
    "zsh": f"""
_dragoman_models() {{
  compadd -- "${{(@f)$({INSTALLED})}}"
  _files -/
}}""",
    "fish": f"""
function _dragoman_models
  sh -c '{INSTALLED.replace(chr(92), chr(92) * 2)}'
  __fish_complete_directories
end""",
}
# Bash divides words at `:` and `=`, as in firefox:en-de and --model=en-de.
BASH_WORDS = """
_dragoman() {
  local line="${COMP_LINE:0:COMP_POINT}" word words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  COMP_WORDS=()
  for word in "${words[@]}"; do
    if [[ $word == --*=* ]]; then COMP_WORDS+=("${word%%=*}" "${word#*=}"); else COMP_WORDS+=("$word"); fi
  done
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _shtab_dragoman
  word="${COMP_WORDS[COMP_CWORD]}"
  if [[ $word == *:* ]]; then COMPREPLY=("${COMPREPLY[@]#"${word%:*}:"}"); fi
}
complete -o bashdefault -F _dragoman dragoman
"""
COMPLETED: dict[str, Any] = {
    "FILE": shtab.FILE,
    "FOLDER": shtab.DIRECTORY,
    "MODEL": {"bash": "_dragoman_models", "zsh": "_dragoman_models", "fish": "(_dragoman_models)"},
}


def files() -> Iterator[tuple[Path, str]]:
    """Yields each file and the text that it should have."""
    root = ArgumentParser("dragoman")
    commands = root.add_subparsers()
    _add(commands, "version", ArgumentParser(add_help=False), "print the version")
    help_parser = ArgumentParser(add_help=False)
    first_words = dict.fromkeys(name.partition(" ")[0] for name in command_line.COMMANDS)
    help_parser.add_argument("command", choices=list(first_words))
    _add(commands, "help", help_parser, "list the options of a command")
    groups = {"": commands}
    for name, (_, summary) in command_line.COMMANDS.items():
        first, _, second = name.partition(" ")
        if second and first not in groups:
            parent = commands.choices.get(first) or _add(commands, first, ArgumentParser(), f"commands on {first}")
            groups[first] = parent.add_subparsers()
        _add(groups[first if second else ""], second or first, _parser(name), summary)
    for shell, preamble in PREAMBLES.items():
        text = shtab.complete(root, shell, preamble=preamble).rstrip()
        text += "\n" if shell != "bash" else f"\n{BASH_WORDS}"
        yield completion.script(shell), "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _add(commands: Any, name: str, parser: ArgumentParser, summary: str) -> ArgumentParser:
    """Adds a parser as that of a command: argparse itself would create one."""
    commands.add_parser(name, help=summary)
    commands.choices[name] = parser
    return parser


def _parser(name: str) -> ArgumentParser:
    """Returns the parser of a command with what completes the values."""
    command = command_line.load_command(name)
    parser = make_parser(name, command).root_parser
    fields = {option: field for option, field, _ in options_of(command)}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public access
        action.option_strings = [text for text in action.option_strings if "." not in text] or action.option_strings
        # Defaults may have the paths of this machine.
        action.help = re.sub(r" \(default: .*\)$", "", str(action.help), flags=re.DOTALL)
        if action.dest in fields and action.nargs != 0:
            _complete(action, placeholder(action.dest, fields[action.dest]).removesuffix(",..."))
    return parser


def _complete(action: Action, kind: str) -> None:
    if choices := re.fullmatch(r"\{(.*)\}", kind):
        action.choices = choices[1].split(",")
    elif kind in COMPLETED:
        action.complete = COMPLETED[kind]  # type: ignore[attr-defined]


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
