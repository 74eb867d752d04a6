"""The links of the pages lead somewhere."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

LISTED = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True)  # noqa: S607 - the user's git
PAGES = [ROOT / name for name in LISTED.splitlines() if (ROOT / name).exists()]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_heading_of_the_repository(page: Path) -> None:
    assert list(dead_links(page)) == []
