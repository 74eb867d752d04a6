"""Tags of sentences in four languages, tagged by hand, at the places that the attention of a shipped model gives.

The translation is the one in the file, forced on the model, so that the right place of each tag is known.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.export.origin import read_origin
from dragoman.export.source_model import Exportable, find_direction
from dragoman.model.config import TransformerConfig
from dragoman.model.tokenizer.tokenizer import BOS_ID, Tokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.protect.alignment import Alignment, align_tokens
from dragoman.serve.protect.markup.elements import MarkupOptions
from tests.support.markup import Translate, tag_f1, translate_markup, whole
from tests.support.paths import ROOT

BUNDLE = ROOT / "bundles" / "multi30k"
SENTENCES = Path(__file__).with_name("tagged.tsv")
HTML = MarkupOptions("html")
TAG = re.compile(r"<(/?)([a-z])>")


def tagged_sentences() -> Iterator[tuple[str, str, str, str]]:
    """Yields source and target language, and a sentence with tags in both."""
    languages, *rows = (line.split("\t") for line in SENTENCES.read_text().splitlines())
    for row in rows:
        for source, target in permutations(range(len(languages)), 2):
            yield languages[source], languages[target], row[source], row[target]


@cache
def model() -> Exportable:
    return read_origin(BUNDLE)[0]


@torch.inference_mode()
def force(languages: tuple[str, str], source: str, target: str) -> NDArray[np.float32]:
    """Returns the attention of every head to the pieces of a text at each piece of its translation, [L, H, T, S]."""
    tokenizer = model().tokenizer
    assert isinstance(tokenizer, Tokenizer)
    direction = find_direction(model(), languages)
    source_ids, target_ids = model().source_ids(direction.source_prefix, source), tokenizer.encode(target)
    (maps,) = model().network.attention_maps(torch.tensor([source_ids]), torch.tensor([[BOS_ID, *target_ids]]))
    limits = model().network.limits
    assert isinstance(limits, TransformerConfig)
    heads = maps.unflatten(0, (-1, limits.heads)).float().numpy()
    first = len(direction.source_prefix)
    return np.asarray(heads[:, :, : len(target_ids), first : first + len(tokenizer.encode(source))])


def align(source: str, target: str, attention: NDArray[np.float32]) -> Alignment:
    """Returns the alignment of the tokens of two sentences."""
    tokenizer = model().tokenizer
    offsets = tokenizer.encode_offsets(source), tokenizer.decode_offsets(tokenizer.encode(target))
    return align_tokens(source, offsets[0], target, offsets[1], attention)


def forced(target: str, alignment: Alignment) -> Translate:
    """Returns a translation that does not depend on the text."""
    return lambda _: (target, alignment)


def test_tags_of_sentences_in_four_languages_enclose_the_right_words() -> None:
    heads = Bundle.open(BUNDLE).manifest.alignment_heads
    pairs = list[tuple[str, str]]()
    for source_language, target_language, source, reference in tagged_sentences():
        plain, target = TAG.sub("", source), TAG.sub("", reference)
        maps = force((source_language, target_language), plain, target)
        alignment = align(plain, target, np.mean([maps[head.layer, head.head] for head in heads], axis=0))
        pairs.append((translate_markup(source, HTML, forced(target, alignment), whole), reference))
    f1, equal = tag_f1(pairs)
    print(f"four languages: tag-span F1 {f1:.4f}, equal {equal:.4f}, {len(pairs)} sentences")
    assert f1 >= 0.95
    assert equal >= 0.70
