"""Measures a bundle on the held-out text of `dragoman corpus included`: everyday sentences, words and messages.

Run `python -m benchmarks.features.held_out BUNDLE TEXT`. `--everyday FILE` writes the translations of the everyday
sentences for judges: direction, source, reference, translation, and 1 if the answer has low confidence. Judges write a
line of 1 (right) or 0 per row; `--judgments FILE FILE` counts what both call right, and how often low confidence is
wrong.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tabulate import tabulate

from dragoman.model.data.corpus import read_lines
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from dragoman.serve.translation.response import Translation

TARGETS = ("de", "fr", "cs")
DIRECTIONS = (*(("en", target) for target in TARGETS), *((target, "en") for target in TARGETS))
WORDS = "train.words"
FREQUENT_WORDS = 500
_FINDER = Finder(KINDS)


class Row(NamedTuple):
    """A held-out pair and the answer of the model."""

    source: str
    reference: str
    translation: Translation


def read_sides(folder: Path, part: str, direction: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Returns sources and references of a part."""
    (other,) = {*direction} - {"en"}
    source, target = (read_lines(folder / f"{part}.en-{other}.{side}") for side in direction)
    return source, target


async def translate_part(
    translator: LocalTranslator, folder: Path, part: str, count: int | None = None
) -> dict[str, list[Row]]:
    """Returns the first pairs of a part, as `test.everyday`, and their translations, by direction."""
    rows = dict[str, list[Row]]()
    for direction in DIRECTIONS:
        sources, references = (side[:count] for side in read_sides(folder, part, direction))
        source, target = direction
        translations = await translator.translate(sources, source_language=source, target_language=target)
        rows["-".join(direction)] = list(map(Row, sources, references, translations))
    return rows


def form_of(rows: dict[str, list[Row]]) -> Iterator[dict[str, object]]:
    """Yields per direction the shares of messages that have placeholders, case and final mark as expected."""
    for direction, mine in rows.items():
        held = [row for row in mine if _FINDER.texts(row.source)]
        kept = [sorted(_FINDER.texts(row.source)) == sorted(_FINDER.texts(row.translation.text)) for row in held]
        case = [row.reference[0].isupper() == row.translation.text[:1].isupper() for row in mine]
        mark = [row.reference[-1:].isalnum() == row.translation.text[-1:].isalnum() for row in mine]
        yield {
            "messages": direction,
            "texts": len(mine),
            "with placeholders": len(held),
            "placeholders": fmean(kept),
            "case": fmean(case),
            "final mark": fmean(mark),
        }


def words_of(folder: Path, rows: dict[str, list[Row]]) -> Iterator[dict[str, object]]:
    """Yields per direction the share of words whose translation the table has for them, in any case."""
    for direction, mine in zip(DIRECTIONS, rows.values(), strict=True):
        known = {*zip(*map(_casefold, read_sides(folder, WORDS, direction)), strict=True)}
        same = [(row.source.casefold(), row.translation.text.casefold()) in known for row in mine]
        yield {"words": "-".join(direction), "texts": len(mine), "as in the table": fmean(same)}


def _casefold(texts: list[str]) -> list[str]:
    return [text.casefold() for text in texts]


def judged(rows: Path, judgments: Sequence[Path]) -> Iterator[dict[str, object]]:
    """Yields per direction how many translations all judges call right, and that by confidence."""
    verdicts = zip(*(read_lines(path) for path in judgments), strict=True)
    right = [set(each) == {"1"} for each in verdicts]
    cells = [line.split("\t") for line in read_lines(rows)]
    for direction in dict.fromkeys(row[0] for row in cells):
        mine = [(row[4] == "1", good) for row, good in zip(cells, right, strict=True) if row[0] == direction]
        low, usual = ([good for flag, good in mine if flag is wanted] for wanted in (True, False))
        yield {
            "everyday": direction,
            "texts": len(mine),
            "right": sum(good for _, good in mine),
            "low confidence": len(low),
            "of them wrong": len(low) - sum(low),
            "usual confidence": len(usual),
            "of them right": sum(usual),
        }


def show(outcomes: Sequence[Mapping[str, Any]], formats: Mapping[str, str]) -> None:
    """Prints a table with a row per outcome, and a line of JSON; `formats` has those of some columns."""
    rows = [{name: formats.get(name, "{}").format(value) for name, value in outcome.items()} for outcome in outcomes]
    print(tabulate(rows, headers="keys", disable_numparse=True))
    print(json.dumps(outcomes))


async def measure(options: argparse.Namespace) -> None:
    """Prints the tables of words and messages, and writes the everyday sentences."""
    async with LocalTranslator(options.bundle) as translator:
        if options.everyday is not None:
            everyday = await translate_part(translator, options.text, "test.everyday")
            lines = [
                f"{direction}\t{source}\t{reference}\t{found.text}\t{int(bool(found.low_confidence))}"
                for direction, rows in everyday.items()
                for source, reference, found in rows
            ]
            options.everyday.write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = await translate_part(translator, options.text, WORDS, FREQUENT_WORDS)
        show(list(words_of(options.text, words)), {"as in the table": "{:.1%}"})
        messages = await translate_part(translator, options.text, "test.messages")
        show(list(form_of(messages)), dict.fromkeys(("placeholders", "case", "final mark"), "{:.1%}"))


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("text", type=Path, help="folder that `dragoman corpus included` wrote")
    parser.add_argument("--everyday", type=Path, help="file of the translated everyday sentences")
    parser.add_argument("--judgments", type=Path, nargs="+", help="with --everyday: only counts these verdicts")
    options = parser.parse_args()
    if options.judgments:
        show(list(judged(options.everyday, options.judgments)), {})
    else:
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()
