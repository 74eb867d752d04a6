"""Measures markup: the time of tags per kilobyte, and whether texts without tags keep their translations to the bit.

Run `python -m benchmarks.features.markup BUNDLE`. The texts are validation sentences of Multi30k, alone and with an
element around every third word. The time is that of reading the tags and of placing them by an alignment, without the
model. The last line is JSON.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness.feature import fields_of, service_options_of, show
from dragoman.model.data.corpus import read_corpus
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupOptions
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tags import place_tags

_ROUNDS = 5


def with_tags(text: str) -> str:
    """Returns a text with an element around every third word."""
    return " ".join(f"<b>{word}</b>" if number % 3 == 1 else word for number, word in enumerate(text.split()))


def milliseconds_per_kb(texts: Sequence[str]) -> float:
    """Returns the median time per 1,000 bytes of the documents."""
    options = MarkupOptions("html")
    alignments = {count: 0.9 * np.eye(count) + 0.1 / max(1, count) for count in range(200)}
    rounds = list[float]()
    for _ in range(_ROUNDS):
        started_seconds = time.perf_counter()
        for text in texts:
            document = read_document(text, options, lambda blocks: [[(0, len(block))] for block in blocks])
            for sentence in document.sentences:
                words = sentence.text.split(" ")
                edges = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
                spans = [(start, start + len(word)) for start, word in zip(edges, words, strict=False)]
                alignment = Alignment.of(spans, spans, alignments[len(words)])
                place_tags(sentence, sentence.text, alignment, document.escaper)
        rounds.append(time.perf_counter() - started_seconds)
    return 1e6 * statistics.median(rounds) / sum(len(text.encode()) for text in texts)


async def count_changed(bundle: Path, texts: Sequence[str], languages: tuple[str, str]) -> int:
    """Returns how many texts without tags get another translation or another score with `format: html`."""
    changed, fields = 0, fields_of(languages)
    async with LocalTranslator(bundle) as translator:
        for text in texts:
            plain = await translator.translate(text, **fields)
            html = await translator.translate(text, format="html", **fields)
            changed += (plain.text, plain.score) != (html.text, html.score)
    return changed


def main() -> None:
    """Prints the figures."""
    options = service_options_of(__doc__).parse_args()
    validation = read_corpus(options.data, "validation", options.multi30k_folder)
    plain = [text for text in validation.sources if not set(text) & set("<>&")]
    figures = {
        "texts": len(plain),
        "changed": asyncio.run(count_changed(options.bundle, plain, validation.languages)),
        "plain_ms_per_kb": milliseconds_per_kb(plain),
        "tagged_ms_per_kb": milliseconds_per_kb(list(map(with_tags, plain))),
    }
    show([figures], {"plain_ms_per_kb": "{:.2f}", "tagged_ms_per_kb": "{:.2f}"})


if __name__ == "__main__":
    main()
