"""Measures placeholders: whether all come back, how, and what they cost in BLEU.

Run `python -m benchmarks.placeholders BUNDLE`. The texts are validation sentences of Multi30k, in turn, with one or two
placeholders before their words. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import sacrebleu

from model.data.corpus import read_corpus
from serve.app import open_dispatcher
from serve.observability.logs import RequestRecord, configure_logs
from serve.settings import ServeSettings
from serve.translation.request import TranslateRequest
from serve.translation.response import Translation

PLACEHOLDERS = ("%s", "%1$d", "%(name)s", "{0}", "{user}", "{{ name }}", "${HOME}", "https://a.example/b?c=1", "@ann")
_FOUND = re.compile("|".join(map(re.escape, PLACEHOLDERS)))


def with_placeholders(text: str, random_numbers: random.Random) -> str:
    """Returns a text with one or two placeholders before its words."""
    words = text.split()
    for _ in range(random_numbers.randint(1, 2)):
        words.insert(random_numbers.randrange(len(words)), random_numbers.choice(PLACEHOLDERS))
    return " ".join(words)


def without_placeholders(text: str) -> str:
    """Returns a text without placeholders and the space that they leave."""
    return " ".join(_FOUND.sub(" ", text).split())


async def translate(
    bundle: Path, texts: Sequence[str], languages: tuple[str, str], kinds: Sequence[str]
) -> list[Translation]:
    """Returns the translations of texts with placeholders of these kinds."""
    configure_logs("console")
    translations = list[Translation]()
    async with open_dispatcher(ServeSettings(bundle=bundle)) as dispatcher:
        for first in range(0, len(texts), 32):
            request = TranslateRequest(
                text=tuple(texts[first : first + 32]),
                source_language=languages[0],
                target_language=languages[1],
                placeholders=tuple(kinds),
            )
            translations += (await dispatcher.translate(request, RequestRecord("local"))).translations
    return translations


def main() -> None:
    """Prints the figures, and again as JSON."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", default="multi30k:en-de")
    parser.add_argument("--multi30k-folder", type=Path)
    parser.add_argument("--texts", type=int, default=2000)
    options = parser.parse_args()
    corpus = read_corpus(options.data, "validation", options.multi30k_folder)
    pairs = [pair for pair in zip(corpus.sources, corpus.targets, strict=True) if not _FOUND.search("".join(pair))]
    random_numbers = random.Random(1)
    chosen = (pairs * (1 + options.texts // len(pairs)))[: options.texts]
    plain, references = [source for source, _ in chosen], [target for _, target in chosen]
    texts = [with_placeholders(text, random_numbers) for text in plain]
    found = asyncio.run(translate(options.bundle, texts, corpus.languages, ["all"]))
    without = asyncio.run(translate(options.bundle, plain, corpus.languages, []))
    kept = [
        Counter(_FOUND.findall(text)) == Counter(_FOUND.findall(each.text))
        for text, each in zip(texts, found, strict=True)
    ]
    ways = Counter(repair.way.value for each in found for repair in each.repairs or ())
    figures = {
        "texts": len(texts),
        "placeholders": sum(len(_FOUND.findall(text)) for text in texts),
        "all_kept": sum(kept),
        **ways,
        "bleu_plain": sacrebleu.corpus_bleu([each.text for each in without], [references]).score,
        "bleu_placeholders_removed": sacrebleu.corpus_bleu(
            [without_placeholders(each.text) for each in found], [references]
        ).score,
    }
    for name, value in figures.items():
        print(f"{name:>26} {value:g}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
