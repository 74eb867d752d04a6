"""Subword sampling follows the paper's distribution and depends on the seed only."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from dragoman.model.data.segmentation import SubwordSampler
from dragoman.model.tokenizer.tokenizer import WORD_START, Tokenizer

LINES = ["gardener riverside", "", "harden gardening 12", "  river   gardener\u00a0delta ﬁne", "語 riverside"]

IN_ANOTHER_PROCESS = """
import sys
import numpy as np
from dragoman.model.data.segmentation import SubwordSampler
from dragoman.model.tokenizer.tokenizer import Tokenizer
sampler = SubwordSampler(Tokenizer(sys.stdin.buffer.read()), 0.2, [sys.argv[1:]])
print(*sampler.sample(np.random.default_rng(7)))
"""


def draw(tokenizer: Tokenizer, lines: list[str], alpha: float, seed: int) -> list[list[int]]:
    (sampled,) = SubwordSampler(tokenizer, alpha, [lines]).sample(np.random.default_rng(seed))
    return sampled


def test_samples_spell_the_text_they_were_drawn_from(tokenizer: Tokenizer) -> None:
    usual = [tokenizer.decode(ids) for ids in tokenizer.encode_lines(LINES)]
    drawn = [draw(tokenizer, LINES, 0.2, seed) for seed in range(20)]
    assert all([tokenizer.decode(ids) for ids in sampled] == usual for sampled in drawn)
    assert len(set(map(str, drawn))) > 10


def test_a_timid_sample_is_the_usual_segmentation(tokenizer: Tokenizer) -> None:
    assert draw(tokenizer, LINES, 1000.0, 1) == tokenizer.encode_lines(LINES)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0])
def test_segmentations_are_drawn_with_the_probability_of_the_paper(tokenizer: Tokenizer, alpha: float) -> None:
    """P(x)^alpha, normalized, for every segmentation of a word within a sentence."""
    word, draws = "gardening", 20_000
    choices = tokenizer.segmentations(WORD_START + word, 64)
    weights = np.array([np.exp(alpha * choice.log_probability) for choice in choices])
    seen = Counter(_middle_word(tokenizer, ids) for ids in draw(tokenizer, [f"harden {word} river"] * draws, alpha, 3))
    assert set(seen) <= {tuple(choice.ids) for choice in choices}
    for choice, probability in zip(choices, weights / weights.sum(), strict=True):
        deviation = (probability * (1 - probability) / draws) ** 0.5
        assert abs(seen[tuple(choice.ids)] / draws - probability) < 5 * deviation


def _middle_word(tokenizer: Tokenizer, ids: list[int]) -> tuple[int, ...]:
    starts = [index for index, piece in enumerate(tokenizer.pieces(ids)) if piece.startswith(WORD_START)]
    return tuple(ids[starts[1] : starts[2]])


def test_texts_are_drawn_side_by_side(tokenizer: Tokenizer) -> None:
    first, second, none = SubwordSampler(tokenizer, 0.1, [LINES, LINES[::-1], []]).sample(np.random.default_rng(1))
    assert list(map(tokenizer.decode, first)) == list(map(tokenizer.decode, second[::-1]))
    assert first != second[::-1]
    assert none == []


@pytest.mark.parametrize("text", ["<2de>", "<2de> river", "river<2de>", f"{WORD_START}<2de>", "<2de><2en>"])
def test_no_sample_holds_a_language_token(two_way_tokenizer: Tokenizer, text: str) -> None:
    tokens = {two_way_tokenizer.language_token(language) for language in ("de", "en")}
    for ids in draw(two_way_tokenizer, [text] * 50, 0.1, 1):
        assert not tokens & set(ids)


def test_another_process_draws_the_same(tokenizer: Tokenizer) -> None:
    """So a resumed run gets the data of an uninterrupted one."""
    lines = [line for line in LINES if line]
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, *lines]
    other = subprocess.run(command, input=tokenizer.model, capture_output=True, check=True, timeout=60)
    assert other.stdout.decode().strip() == str(draw(tokenizer, lines, 0.2, 7))
