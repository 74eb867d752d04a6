"""The links of the pages lead somewhere, and their commands exist with their options."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

LISTED = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True)  # noqa: S607 - the user's git
PAGES = [ROOT / name for name in LISTED.splitlines() if (ROOT / name).exists()]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
# The help of each command, by its name with hyphens.
HELP = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tests/snapshots/data/help").iterdir()}
# Programs of earlier commits may have had other commands.
EARLIER = r"Measured by `[^`]*`|`[^`]*`\s+of\s+commit|is in commit \w+,\s+`[^`]*`"
CALL = r"(?:^ {4,}|`)(?:\w+=\S* |[$] |taskset -c \d |echo .* [|] )*(?:\S*/)?(dragoman|make) (?![\w-]+:)([^&|;<>#`]+)"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            yield link


def unknown_words(page: Path) -> Iterator[str]:
    """Yields each command and each target of make that does not exist, and each option that its command lacks."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    groups = {"help", "version", "--help", *(name.partition("-")[0] for name in HELP)}
    text = re.sub(EARLIER, "", page.read_text(encoding="utf-8").replace("\\\n", ""))
    for program, call in re.findall(CALL, text, re.MULTILINE):
        first, *words = re.split(r"\n\n|\n {4}\S", call)[0].split()
        help_text = HELP.get("-".join([first, *words[:1]]), HELP.get(first))
        if program == "make":
            yield from {first} - targets
        elif help_text is None:
            yield from {first} - groups
        else:
            options = (word.partition("=")[0] for word in words if word.startswith("--"))
            yield from (option for option in options if not re.search(rf"{option}(?![\w-])", help_text))


@EACH_PAGE
def test_every_link_of_a_page_leads_to_a_file_and_heading_of_the_repository(page: Path) -> None:
    assert list(dead_links(page)) == []


@EACH_PAGE
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    assert list(unknown_words(page)) == []
