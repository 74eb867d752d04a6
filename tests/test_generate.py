"""Greedy generation is what an obvious loop over the whole model gives, sentence by sentence."""

import pytest
import torch

from model.generate import Generated, generate_greedy
from model.tokenizer import BOS_ID, EOS_ID
from model.transformer import Transformer
from tests.toy import random_model, random_sources

SEEDS = (1, 2, 3, 4)
LIMIT = 9


@torch.inference_mode()
def translate(model: Transformer, source: list[int]) -> Generated:
    """Translates one source, calling the whole model anew for every token."""
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


@pytest.fixture(scope="module", params=SEEDS)
def answers(request: pytest.FixtureRequest) -> list[tuple[Generated, Generated]]:
    """For each source what one batch gives, and what the loop gives."""
    model = random_model(request.param)
    sources = random_sources(model, request.param, 12)
    return list(zip(generate_greedy(model, sources), [translate(model, source) for source in sources], strict=True))


def test_a_batch_gives_the_tokens_of_the_loop(answers: list[tuple[Generated, Generated]]) -> None:
    assert [batched.target_ids for batched, _ in answers] == [alone.target_ids for _, alone in answers]


def test_the_score_is_the_sum_of_log_probabilities_with_the_end_token(
    answers: list[tuple[Generated, Generated]],
) -> None:
    for batched, alone in answers:
        assert batched.score == pytest.approx(alone.score, abs=1e-4)


def test_every_step_has_a_gap_between_the_best_and_the_second_best_logit(
    answers: list[tuple[Generated, Generated]],
) -> None:
    for batched, alone in answers:
        assert len(batched.gaps) == len(alone.gaps)
        assert batched.gaps == pytest.approx(alone.gaps, abs=1e-4)


def test_the_random_models_try_every_way_to_end() -> None:
    """Otherwise the tests above show less than they say."""
    models = [random_model(seed) for seed in SEEDS]
    answers = [
        generate_greedy(model, random_sources(model, seed, 12)) for seed, model in zip(SEEDS, models, strict=True)
    ]
    lengths = {len(answer.target_ids) for batch in answers for answer in batch}
    assert {0, LIMIT} < lengths


def test_no_translation_is_longer_than_the_limit(answers: list[tuple[Generated, Generated]]) -> None:
    assert all(len(batched.target_ids) <= LIMIT for batched, _ in answers)


def test_a_translation_holds_no_end_token_and_no_padding(answers: list[tuple[Generated, Generated]]) -> None:
    assert all(EOS_ID not in batched.target_ids for batched, _ in answers)
