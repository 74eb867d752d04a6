"""Refuses tables of docs/measurements that do not state when and where they were measured. `make check` runs it.

A place of `make measurements` is empty or of the version of pyproject.toml. A section with another table names a
processor and a date, in itself or above the first section of its page. summary.md has each figure of README.md.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PLACE = re.compile(r"<!-- measured: (\S+) -->(.*?)<!-- /measured: \1 -->", re.DOTALL)
SECTION = re.compile(r"^## ", re.MULTILINE)
# A row of a table whose last columns are figures, as the line below its heading states by its alignment.
FIGURES = re.compile(r"^\|[ :|-]*-:[ :|-]*\|$", re.MULTILINE)
PROCESSOR = re.compile(r"\b(AMD|Intel|NVIDIA|Arm|Apple|qemu)\b")
# The last column of a table, and its numbers.
VALUES = re.compile(r"\| ([^|\n]*\d[^|\n]*) \|$", re.MULTILINE)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def problems(page: str, text: str, version: str, places: dict[str, str]) -> Iterator[str]:
    """Yields the problems of a page. `places` maps the name of each measurement to its page."""
    found = dict(PLACE.findall(text))
    for name in found.keys() ^ {name for name, where in places.items() if where == page}:
        yield f"measured: {name}: expected it once in this page and in benchmarks/measurements.yaml"
    for name, content in found.items():
        lines = re.findall(r"^Measured by `.*$", content, re.MULTILINE)
        if content.strip() and not lines:
            yield f"measured: {name}: expected a line that begins with: Measured by"
        for line in lines:
            if f"; dragoman {version}, " not in line or not DATE.search(line):
                yield f"measured: {name}: expected dragoman {version} and a date: run make measurements ONLY={name}"
    head, *sections = SECTION.split(PLACE.sub("", text))
    for section in [head, *sections]:
        if FIGURES.search(section) and not (PROCESSOR.search(head + section) and DATE.search(head + section)):
            yield f"{section.splitlines()[0]}: expected a processor and a date (YYYY-MM-DD) with its table"


def unproved(readme: str, summary: str) -> Iterator[str]:
    """Yields each figure of README.md that the summary does not have."""
    figures = readme.partition("\n## Figures\n")[2].partition("\n## ")[0]
    known = set(NUMBER.findall(summary))
    for value in VALUES.findall(figures):
        if not known.issuperset(NUMBER.findall(value)):
            yield f"README.md: Figures: {value}: expected it in summary.md"


def main() -> None:
    """Prints each problem with its page; exits with 1 if there is one."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    known = yaml.safe_load((ROOT / "benchmarks/measurements.yaml").read_text("utf-8"))
    places = {name: fields["page"] for name, fields in known.items()}
    pages = sorted((ROOT / "docs/measurements").glob("*.md"))
    found = [
        f"{page}: {problem}"
        for page in pages
        for problem in problems(page.name, page.read_text("utf-8"), version, places)
    ]
    readme, summary = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/measurements/summary.md"))
    found += unproved(readme, summary)
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
