"""Measures the detection of languages: accuracy at a sentence, three words and one word, and the time per text.

Run `python -m benchmarks.features.detection`. The texts are the validation sentences of Multi30k in four languages,
their first three words and their middle word. `--sentences FILE` adds a table of other sentences. It has a column per
language, with its code in the first row. Tags are left out. The last line is JSON.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.feature import options_of, show
from dragoman.model.data.corpus import read_corpus
from dragoman.serve.languages.detector import detect_language, load

LANGUAGES = ("cs", "de", "en", "fr")
# The languages of Europe that the model knows, of which a server of many languages may have all.
_MANY = (
    "bg bs ca cs cy da de el en es et eu fi fr ga gl hr hu is it lb lt lv mk mt nl no pl pt ro ru sk sl sq sr sv tr uk"
)
_TAG = re.compile(r"<[^<>]*>")
Cut = Callable[[list[str]], list[str]]
CUTS: dict[str, Cut] = {
    "sentence": lambda words: words,
    "three words": lambda words: words[:3],
    "one word": lambda words: words[len(words) // 2 :][:1],
}


def detect(data: str, part: str, texts: Sequence[tuple[str, str]], candidates: Sequence[str]) -> dict[str, Any]:
    """Returns the figures of texts, each with its language.

    `candidates` is the number of languages that a text may have, `accuracy` the share of texts with their language
    first, `unknown` that of texts without evidence, and `microseconds` the mean time per text.
    """
    started_seconds = time.perf_counter()
    found = [detect_language(text, candidates) for _, text in texts]
    seconds = time.perf_counter() - started_seconds
    correct = sum(bool(result) and result[0][0] == code for result, (code, _) in zip(found, texts, strict=True))
    unknown = sum(not result for result in found)
    count = len(texts)
    return {
        "data": data,
        "part": part,
        "candidates": len(candidates),
        "texts": count,
        "accuracy": correct / count,
        "unknown": unknown / count,
        "microseconds": 1e6 * seconds / count,
    }


def multi30k_sentences(folder: Path | None) -> Iterator[tuple[str, str]]:
    """Yields language and text of the validation sentences."""
    for code in LANGUAGES:
        other = "de" if code == "en" else "en"
        yield from ((code, text) for text in read_corpus(f"multi30k:{code}-{other}", "validation", folder).sources)


def table_sentences(file: Path) -> Iterator[tuple[str, str]]:
    """Yields language and text of each cell of a table."""
    codes, *rows = (line.split("\t") for line in file.read_text("utf-8").splitlines())
    for row in rows:
        yield from ((code, _TAG.sub("", text)) for code, text in zip(codes, row, strict=True))


def main() -> None:
    """Prints a table and the outcomes as JSON."""
    parser = options_of(__doc__)
    parser.add_argument("--sentences", type=Path)
    options = parser.parse_args()
    load()
    sources = {"multi30k": list(multi30k_sentences(options.multi30k_folder))}
    if options.sentences is not None:
        sources["own"] = list(table_sentences(options.sentences))
    outcomes = list[dict[str, Any]]()
    for data, sentences in sources.items():
        for part, cut in CUTS.items():
            texts = [(code, " ".join(cut(text.split()))) for code, text in sentences]
            for candidates in (LANGUAGES, _MANY.split()):
                detect(data, part, texts[:10], candidates)
                outcomes.append(detect(data, part, texts, candidates))
    show(outcomes, {"accuracy": "{:.1%}", "unknown": "{:.1%}", "microseconds": "{:.0f}"})


if __name__ == "__main__":
    main()
