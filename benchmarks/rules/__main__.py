"""Counts translations that break a rule of placeholders, terms or messages.

Run `python -m benchmarks.rules BUNDLE`. No placeholder and no term is a part of a word. A text with words has a
translation with words. A message keeps its structure, and its branches are translated;
`@formatjs/icu-messageformat-parser` reads it, which `make clients` installs. The last line is JSON.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.harness.feature import fields_of, show
from benchmarks.rules.texts import Case, MessageGrammar, bounded_cases, short_texts
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.protect.alignment import is_word
from dragoman.serve.protect.markup.sentences import has_letter_outside
from dragoman.serve.protect.placeholders.check import RepairWay
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.sentence_terms import TermWay
from dragoman.serve.translation.response import Translation

ROOT = Path(__file__).parents[2]
STRUCTURE = Path(__file__).with_name("structure.mjs")
MAX_LENGTH_RATIO = 4
_FINDER = Finder(KINDS)


@dataclass(slots=True)
class Outcome:
    """The texts of one rule, and the translations that break it.

    `untranslated` counts texts, or parts of messages, that came back as they were, and are reported so.
    """

    rule: str
    texts: int = 0
    broken: list[tuple[str, str]] = field(default_factory=list)
    untranslated: int = 0

    def add(self, text: str, translation: Translation, *, holds: bool) -> None:
        """Counts a translation."""
        self.texts += 1
        self.untranslated += any(repair.way is RepairWay.UNTRANSLATED for repair in translation.repairs or ())
        if not holds:
            self.broken.append((text, translation.text))

    @property
    def row(self) -> dict[str, Any]:
        """The figures."""
        return {"rule": self.rule, "texts": self.texts, "broken": len(self.broken), "untranslated": self.untranslated}


def is_bounded(case: Case, translation: Translation) -> bool:
    """Returns whether a translation has the kept part, not inside a word; only terms may have another ending."""
    if case.term is not None and [term.way for term in translation.terms or ()] == [TermWay.PRESENT]:
        return True
    text, kept = translation.text.lower(), case.kept.lower()
    start = text.find(kept)
    end = start + len(kept)
    return start >= 0 and not (is_word(text[max(0, start - 1) : start]) or is_word(text[end : end + 1]))


def has_words(text: str) -> bool:
    """Returns whether a text has a letter outside of its placeholders."""
    return has_letter_outside(text, _FINDER.spans(text))


async def count_bounded(translator: LocalTranslator, direction: tuple[str, str]) -> Outcome:
    """Counts placeholders and terms that are parts of words."""
    outcome = Outcome(f"{'-'.join(direction)}: parts are no parts of words")
    for term, group in groupby(bounded_cases(*direction), key=lambda case: case.term):
        cases = list(group)
        fields = fields_of(direction)
        fields |= {"placeholders": ("all",)} if term is None else {"terms": (Entry(term[0], (term[1],)),)}
        translations = await translator.translate([case.text for case in cases], **fields)
        for case, translation in zip(cases, translations, strict=True):
            outcome.add(case.text, translation, holds=is_bounded(case, translation))
    return outcome


async def count_wordless(translator: LocalTranslator, direction: tuple[str, str]) -> Outcome:
    """Counts translations without words, with other placeholders or with another length."""
    outcome = Outcome("short texts keep words, placeholders and length")
    texts = [case.text for case in short_texts()]
    translations = await translator.translate(texts, placeholders=("all",), **fields_of(direction))
    for text, translation in zip(texts, translations, strict=True):
        similar = len(text) <= MAX_LENGTH_RATIO * len(translation.text) <= MAX_LENGTH_RATIO**2 * len(text)
        kept = _FINDER.texts(text) == _FINDER.texts(translation.text)
        outcome.add(text, translation, holds=has_words(translation.text) and similar and kept)
    return outcome


def read_structures(messages: Sequence[str], packages: Path) -> list[dict[str, Any] | None]:
    """Returns structure and texts of messages, as the parser of formatjs reads them; None: malformed."""
    node = shutil.which("node")
    if node is None:
        raise FileNotFoundError("node: not installed")
    # A module finds packages next to itself.
    script = packages / STRUCTURE.name
    script.write_bytes(STRUCTURE.read_bytes())
    done = subprocess.run([node, str(script)], input=json.dumps(messages), capture_output=True, text=True, check=True)
    structures: list[dict[str, Any] | None] = json.loads(done.stdout)
    return structures


async def count_messages(
    translator: LocalTranslator, direction: tuple[str, str], packages: Path, count: int
) -> Iterator[Outcome]:
    """Counts messages with another structure, and texts of branches that are not translated."""
    structure, branches = Outcome("messages keep their structure"), Outcome("texts of messages are translated")
    messages = list(MessageGrammar(1).messages(count))
    translations = await translator.translate(messages, placeholders=("all",), **fields_of(direction))
    before = await asyncio.to_thread(read_structures, messages, packages)
    after = await asyncio.to_thread(read_structures, [translation.text for translation in translations], packages)
    for message, translation, first, last in zip(messages, translations, before, after, strict=True):
        same = first is not None and last is not None and first["structure"] == last["structure"]
        structure.add(message, translation, holds=same)
        if first is not None and last is not None:
            reported = sum(repair.way is RepairWay.UNTRANSLATED for repair in translation.repairs or ())
            branches.add(message, translation, holds=sum(text in last["texts"] for text in first["texts"]) <= reported)
    return iter((structure, branches))


async def count_all(options: argparse.Namespace) -> list[Outcome]:
    """Returns the outcomes of all rules for a bundle."""
    first = options.directions[0]
    async with LocalTranslator(options.bundle) as translator:
        return [
            *[await count_bounded(translator, direction) for direction in options.directions],
            await count_wordless(translator, first),
            *await count_messages(translator, first, options.packages, options.messages),
        ]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--directions", nargs="+", default=["en-de"], help="the first one also for short texts")
    parser.add_argument("--messages", type=int, default=400)
    parser.add_argument("--packages", type=Path, default=ROOT / ".clients", help="the folder with node_modules")
    options = parser.parse_args()
    options.directions = [tuple(direction.split("-")) for direction in options.directions]
    outcomes = asyncio.run(count_all(options))
    for outcome in outcomes:
        for text, translation in outcome.broken:
            print(f"{outcome.rule}: {text!r} -> {translation!r}")
    show([outcome.row for outcome in outcomes], {})


if __name__ == "__main__":
    main()
