"""The model in NumPy reads translations as PyTorch writes them, for every option of a Transformer."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.export import teacher_forcing
from dragoman.export.teacher_forcing import Pair, read_translations
from dragoman.export.torch_weights import to_weights
from dragoman.model.search import Generated, generate_greedy
from dragoman.model.weights import TransformerWeights
from tests.support.toy import OPTIONS, random_model, random_sources

VOCABULARY = 50


def pairs_of(sources: Sequence[Sequence[int]], answers: Sequence[Generated]) -> list[Pair]:
    return [Pair(tuple(source), (), answer.target_ids) for source, answer in zip(sources, answers, strict=True)]


def leads_of(weights: TransformerWeights, pairs: Sequence[Pair]) -> list[float]:
    return read_translations(weights, pairs, lambda *_: None)


@pytest.mark.parametrize("options", OPTIONS)
def test_leads_are_those_of_pytorch(options: str) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS[options])
    sources = random_sources(model, 3, 20)
    answers = generate_greedy(model, sources)
    found = leads_of(to_weights(model), pairs_of(sources, answers))
    assert np.allclose(found, [min(answer.gaps) for answer in answers], atol=1e-4)


def changed(pair: Pair, place: int) -> Pair:
    """Returns a pair with another token at a place of its translation."""
    ids = list(pair.target_ids)
    ids[place] = 4 if ids[place] != 4 else 5
    return pair._replace(target_ids=tuple(ids))


def test_a_translation_with_another_token_has_a_negative_lead() -> None:
    model = random_model(5, VOCABULARY)
    sources = random_sources(model, 3, 20)
    pairs = [pair for pair in pairs_of(sources, generate_greedy(model, sources)) if pair.target_ids]
    weights = to_weights(model)
    for place in (0, -1):
        assert max(leads_of(weights, [changed(pair, place) for pair in pairs])) < 0
    assert max(leads_of(weights, [pair._replace(target_ids=pair.target_ids[:-1]) for pair in pairs])) < 0


def test_a_translation_that_reaches_the_limit_needs_no_end() -> None:
    model = random_model(5, VOCABULARY, max_target_tokens=3)
    sources = random_sources(model, 3, 20)
    answers = generate_greedy(model, sources)
    assert {len(answer.gaps) for answer in answers if len(answer.target_ids) == 3} == {3}
    found = leads_of(to_weights(model), pairs_of(sources, answers))
    assert np.allclose(found, [min(answer.gaps) for answer in answers], atol=1e-4)


def test_the_first_tokens_of_a_direction_need_no_lead() -> None:
    model = random_model(5, VOCABULARY)
    sources = random_sources(model, 3, 20)
    longer = [
        (Pair(tuple(source), item.target_ids[:2], item.target_ids[2:]), min(item.gaps[2:]))
        for source, item in zip(sources, generate_greedy(model, sources), strict=True)
        if len(item.target_ids) > 2
    ]
    assert np.allclose(leads_of(to_weights(model), [pair for pair, _ in longer]), [gap for _, gap in longer], atol=1e-4)


def test_a_pass_of_few_tokens_or_logits_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS["modern"])
    sources = random_sources(model, 3, 20)
    pairs = pairs_of(sources, generate_greedy(model, sources))

    def read() -> tuple[list[float], dict[int, list[NDArray[np.float32]]]]:
        seen: dict[int, list[NDArray[np.float32]]] = {}
        weights = to_weights(model)
        return read_translations(weights, pairs, lambda number, row: seen.setdefault(number, []).append(row)), seen

    leads, maps = read()
    monkeypatch.setattr(teacher_forcing, "MAX_TOKENS", 12)
    monkeypatch.setattr(teacher_forcing, "VOCABULARY_BLOCK", 7)
    few_leads, few_maps = read()
    assert np.allclose(leads, few_leads, atol=1e-4)
    assert maps.keys() == few_maps.keys() == set(range(20))
    assert all(np.allclose(np.stack(maps[item]), np.stack(few_maps[item]), atol=1e-4) for item in maps)
