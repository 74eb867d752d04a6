"""Batch invariance with many texts, through the server's graphs, scheduler and engine."""

import random
from itertools import count as count_up
from itertools import islice

import pytest

from dragoman.export.answer import Sentence
from dragoman.export.verify.checks import BatchMix, find_deviations
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.search.options import SearchOptions
from tests.support.promises import Measured

WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "three", "house", "garden", "river")
BATCHES = (2, 8, 32)


@pytest.mark.promise("R1")
@pytest.mark.parametrize("kind", ["wide_bundle", "int8_bundle"])
def test_no_bit_depends_on_the_batch(
    request: pytest.FixtureRequest, measured: Measured, *, thorough: bool, kind: str
) -> None:
    bundle: Bundle = request.getfixturevalue(kind)
    count, seeds = (512, range(5)) if thorough else (12, range(1))
    manifest, tokenizer, chance = bundle.manifest, load_tokenizer(bundle), random.Random(1)
    texts = (" ".join(chance.choices(WORDS, k=chance.randint(1, 6))) for _ in count_up())
    read = (Sentence(text, (*tokenizer.encode(text), EOS_ID)) for text in texts)
    sentences = list(islice((item for item in read if len(item.source_ids) <= manifest.max_source_tokens), count))
    greedy = SearchOptions(max_target_tokens=manifest.max_target_tokens)
    searches = {"greedy": greedy, "beam": greedy._replace(beam_size=4)}
    sessions = load_sessions(bundle, threads=1)
    deviations = [
        deviation
        for seed in seeds
        for deviation in find_deviations(sessions, sentences, searches, BatchMix(BATCHES, seed), lambda _: None)
    ]
    assert deviations == []
    compared = len(sentences) * len(seeds) * len(BATCHES) * len(searches)
    name = f"{kind.removesuffix('_bundle')} model, {manifest.precision}"
    measured("R1", f"{name}: 0 of {compared:,} differ ({count} texts, {len(seeds)} seeds, batches of 2, 8 and 32)")
