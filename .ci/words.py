"""Finds private words in pages and docstrings, and prints what to write instead. `make check` runs it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# At most ten words. A name of a program, a quotation or code stands in backticks, which are not searched.
INSTEAD = {
    r"asked": "requested, called",
    r"so many": "this many, or the number",
    r"so long": "this long, or the time",
    r"nobody": "no client, no thread: the thing that does not act",
    r"somebody": "a client, a user: the thing that acts",
    r"whoever": "the client, the user: the thing that acts",
    r"beside": "next to, compared with, per",
    r"tells": "returns, reports, shows",
    r"says": "states, reports, shows",
    r"knows": "has, reads, imports",
}
WORDS = re.compile(rf"\b({'|'.join(INSTEAD)})\b", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```|^ {4,}(?![-*\d ]).*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the first line and the text of each piece of prose: a whole page, or the docstrings of a module."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield 1, CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, re.sub(r"`[^`\n]*`", "", docstring)


def main() -> None:
    """Prints each word with file, line and what to write instead; exits with 1 if there is one."""
    names = subprocess.check_output(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, text=True)  # noqa: S607 - user's git
    found = False
    for path in (ROOT / name for name in names.splitlines() if "_pb2" not in name):
        for first, prose in read_prose(path) if path.exists() else ():
            for match in WORDS.finditer(prose):
                line = first + prose.count("\n", 0, match.start())
                instead = next(text for word, text in INSTEAD.items() if re.fullmatch(word, match[0], re.IGNORECASE))
                print(f"{path.relative_to(ROOT)}:{line}: {match[0]!r}; write: {instead}")
                found = True
    sys.exit(found)


if __name__ == "__main__":
    main()
