"""Measures placeholders: whether all come back, how, and what they cost in BLEU.

Run `python -m benchmarks.features.placeholders BUNDLE`. The texts are validation sentences of Multi30k with
one or two placeholders before their words. The last line is JSON.
"""

import argparse
import asyncio
import random
import re
from collections import Counter

import sacrebleu

from benchmarks.harness.feature import fields_of, options_of, show
from dragoman.model.data.corpus import read_corpus
from dragoman.serve.local.translator import LocalTranslator

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


async def measure(options: argparse.Namespace) -> None:
    """Prints the figures."""
    corpus = read_corpus(options.data, "validation", options.multi30k_folder)
    pairs = [pair for pair in zip(corpus.sources, corpus.targets, strict=True) if not _FOUND.search("".join(pair))]
    random_numbers = random.Random(1)
    chosen = (pairs * (1 + options.texts // len(pairs)))[: options.texts]
    plain, references = [source for source, _ in chosen], [target for _, target in chosen]
    texts = [with_placeholders(text, random_numbers) for text in plain]
    fields = fields_of(corpus.languages)
    async with LocalTranslator(options.bundle) as translator:
        found = await translator.translate(texts, placeholders=("all",), **fields)
        without = await translator.translate(plain, **fields)
    kept = [
        Counter(_FOUND.findall(text)) == Counter(_FOUND.findall(result.text))
        for text, result in zip(texts, found, strict=True)
    ]
    figures = {
        "texts": len(texts),
        "placeholders": sum(len(_FOUND.findall(text)) for text in texts),
        "all_kept": sum(kept),
        **Counter(repair.way.value for result in found for repair in result.repairs or ()),
        "bleu_plain": sacrebleu.corpus_bleu([item.text for item in without], [references]).score,
        "bleu_placeholders_removed": sacrebleu.corpus_bleu(
            [without_placeholders(result.text) for result in found], [references]
        ).score,
    }
    show([figures], {"bleu_plain": "{:.2f}", "bleu_placeholders_removed": "{:.2f}"})


if __name__ == "__main__":
    parser = options_of(__doc__)
    parser.add_argument("--texts", type=int, default=2000)
    asyncio.run(measure(parser.parse_args()))
