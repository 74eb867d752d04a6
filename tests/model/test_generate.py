"""Incremental decoding in batches equals a plain loop over the whole model, sentence by sentence."""

from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragoman.model.network.transformer import Transformer
from dragoman.model.search import Generated, generate_beam, generate_greedy
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID
from dragoman.serve.search.options import SearchOptions
from tests.support import search_reference
from tests.support.search_reference import Found, Tokens
from tests.support.toy import OPTIONS, random_model, random_sources

SEEDS = (1, 2, 3, 4)
LIMIT = 9

Answers = list[tuple[Generated, Generated]]


@torch.inference_mode()
def translate(model: Transformer, source: list[int]) -> Generated:
    """Translates one source with a full forward pass per token."""
    target_ids = [BOS_ID]
    score = 0.0
    gaps = []
    while len(target_ids) <= LIMIT:
        logits = model(torch.tensor([source]), torch.tensor([target_ids]))[0, -1]
        token_id = int(logits.argmax())
        score += float(logits.log_softmax(dim=-1)[token_id])
        gaps.append(float(logits[token_id] - logits[torch.arange(len(logits)) != token_id].max()))
        if token_id == EOS_ID:
            break
        target_ids.append(token_id)
    return Generated(tuple(target_ids[1:]), score, tuple(gaps))


@torch.inference_mode()
def translate_with_beam(model: Transformer, source: list[int], beam_size: int, length_penalty: float) -> Found:
    """Returns the reference's best translation of one source."""

    @cache
    def next_logits(tokens: Tokens) -> NDArray[np.float64]:
        logits: NDArray[np.float64] = model(torch.tensor([source]), torch.tensor([[BOS_ID, *tokens]]))[0, -1].numpy()
        return logits.astype(np.float64)

    options = SearchOptions(max_target_tokens=LIMIT, beam_size=beam_size, length_penalty=length_penalty)
    return search_reference.search(next_logits, options, eos_id=EOS_ID)[0]


@pytest.fixture(scope="module", params=[*SEEDS, *OPTIONS])
def answers(request: pytest.FixtureRequest) -> Answers:
    """Returns the results of batched greedy search and of the loop."""
    seed, options = (request.param, {}) if isinstance(request.param, int) else (7, OPTIONS[request.param])
    model = random_model(seed, **options)
    sources = random_sources(model, seed, 8)
    return list(zip(generate_greedy(model, sources), [translate(model, source) for source in sources], strict=True))


def test_a_batch_gives_the_tokens_the_score_and_the_gaps_of_the_loop(answers: Answers) -> None:
    """The score includes the end token; a gap lies between the best and the second best logit of a step."""
    for batched, alone in answers:
        assert batched.target_ids == alone.target_ids
        assert batched.score == pytest.approx(alone.score, abs=1e-4)
        assert batched.gaps == pytest.approx(alone.gaps, abs=1e-4)


def test_the_random_models_end_both_at_once_and_at_the_limit() -> None:
    """The other tests of this file need both."""
    models = {seed: random_model(seed) for seed in SEEDS}
    answers = [generate_greedy(model, random_sources(model, seed, 12)) for seed, model in models.items()]
    assert {0, LIMIT} < {len(answer.target_ids) for batch in answers for answer in batch}


@pytest.mark.parametrize(
    ("options", "beam_size", "length_penalty"),
    [*((options, 3, 1.0) for options in OPTIONS), ("default", 1, 0.6), ("default", 7, 2.0)],
)
def test_a_beam_finds_what_the_reference_finds(options: str, beam_size: int, length_penalty: float) -> None:
    model = random_model(7, **OPTIONS[options])
    sources = random_sources(model, 7, 3)
    for source, found in zip(sources, generate_beam(model, sources, beam_size, length_penalty), strict=True):
        expected = translate_with_beam(model, source, beam_size, length_penalty)
        assert found.target_ids == expected.target_ids
        assert found.score == pytest.approx(expected.score, abs=1e-4)
