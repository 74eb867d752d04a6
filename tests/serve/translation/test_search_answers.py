"""Responses of every kind of search over both interfaces equal those of the slow reference and of a trained model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.make_bundle import BundleOptions
from model.run import RunFolder
from model.tokenizer.tokenizer import Tokenizer
from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import AttentionHead
from serve.registry.engine_models import load_models
from serve.runtime.cpu import Runtime, Sessions
from serve.search.options import SearchOptions
from serve.settings import ServeSettings
from tests.support.fake_reference import reference
from tests.support.fakes import BOS_ID, EOS_ID, next_attention
from tests.support.live import LiveService, run_service
from tests.support.search_reference import Found
from tests.support.toy import export_model, toy_test_sentences
from tests.support.wire import refusal_of_both, score_over_both, translate_over_both

TEXT = "ab ba"
LIMIT = 6


def source_of(letters: Tokenizer, text: str) -> tuple[int, ...]:
    return (*letters.encode(text), EOS_ID)


def assert_found(actual: dict[str, Any], expected: Found, letters: Tokenizer) -> None:
    ended = expected.finish_reason == "eos"
    ids = (*expected.target_ids, *([EOS_ID] if ended else []))
    assert actual["text"] == letters.decode(expected.target_ids)
    assert actual["finish_reason"] == expected.finish_reason
    assert actual["target_tokens"] == len(expected.target_ids)
    assert actual["score"] == pytest.approx(expected.score, rel=1e-4)
    assert actual["normalized_score"] == pytest.approx(expected.normalized_score, rel=1e-4)
    assert [token["piece"] for token in actual["tokens"]] == [letters.target_pieces[token_id] for token_id in ids]
    scores = [token["log_probability"] for token in actual["tokens"]]
    assert scores == pytest.approx(expected.token_scores, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 3},
        {"beam_size": 4, "hypotheses": 4, "length_penalty": 0.5, "coverage_penalty": 0.5},
        {"beam_size": 3, "patience": 2.0, "hypotheses": 3, "repetition_penalty": 1.5, "min_target_tokens": 3},
        {"temperature": 1.5, "seed": 7, "hypotheses": 3},
        {"temperature": 2.0, "seed": 2**64 - 1, "top_k": 4, "top_p": 0.75, "no_repeat_ngram_tokens": 2},
    ],
    ids=str,
)
def test_both_interfaces_give_what_the_slow_search_finds(
    letters_live: LiveService, letters: Tokenizer, options: dict[str, Any]
) -> None:
    texts = [TEXT, "b ab", "abba a bab"]
    chosen = {**options, "max_target_tokens": LIMIT}
    request = {"text": texts, "options": {**chosen, "token_scores": True}}
    for text, translation in zip(texts, translate_over_both(letters_live, request), strict=True):
        source_ids = source_of(letters, text)
        expected = reference(source_ids, SearchOptions(**chosen))
        found = [translation, *translation["alternatives"]]
        assert len(found) == len(expected)
        for actual, hypothesis in zip(found, expected, strict=True):
            assert_found(actual, hypothesis, letters)
        assert translation["source_tokens"] == len(source_ids)
        assert translation.get("seed") == options.get("seed")


def test_suppressed_tokens_are_never_chosen(letters_live: LiveService, letters: Tokenizer) -> None:
    pieces = ("ab", "▁a", "b")
    options = {"max_target_tokens": LIMIT, "suppressed_tokens": list(pieces), "token_scores": True}
    (translation,) = translate_over_both(letters_live, {"text": [TEXT], "options": options})
    ids = tuple(letters.target_pieces.index(piece) for piece in pieces)
    (expected,) = reference(source_of(letters, TEXT), SearchOptions(max_target_tokens=LIMIT, suppressed_ids=ids))
    assert_found(translation, expected, letters)


def test_every_text_has_a_prefix_of_its_own(letters_live: LiveService, letters: Tokenizer) -> None:
    texts, prefixes = ["ab ba", "ab ba", "b ab"], ["ba b", "", "a"]
    request = {
        "text": texts,
        "target_prefix": prefixes,
        "options": {"max_target_tokens": LIMIT, "token_scores": True},
    }
    for text, prefix, translation in zip(texts, prefixes, translate_over_both(letters_live, request), strict=True):
        options = SearchOptions(max_target_tokens=LIMIT, target_prefix=tuple(letters.encode(prefix)))
        assert_found(translation, reference(source_of(letters, text), options)[0], letters)
        assert translation["text"].startswith(prefix)


def test_relative_lengths_are_those_of_each_text(letters_live: LiveService) -> None:
    request = {"text": ["ab ba", "ab ab ba ab ba"], "options": {"min_target_ratio": 1.0, "max_target_ratio": 1.0}}
    for translation in translate_over_both(letters_live, request):
        assert translation["target_tokens"] == translation["source_tokens"]


def test_alignments_have_a_row_for_each_token_and_a_column_for_each_source_token(
    letters_live: LiveService, letters: Tokenizer
) -> None:
    options = {"beam_size": 3, "hypotheses": 2, "max_target_tokens": LIMIT, "alignments": True}
    (translation,) = translate_over_both(letters_live, {"text": [TEXT], "options": options})
    chosen = SearchOptions(max_target_tokens=LIMIT, beam_size=3, hypotheses=2)
    for actual, expected in zip(
        [translation, *translation["alternatives"]], reference(source_of(letters, TEXT), chosen), strict=True
    ):
        histories = [np.array((BOS_ID, *expected.target_ids[:index])) for index in range(len(expected.target_ids))]
        rows = [next_attention(translation["source_tokens"], history).tolist() for history in histories]
        assert actual["alignments"] == rows


def test_a_seed_that_was_drawn_draws_the_same_again(letters_live: LiveService) -> None:
    request = {"text": [TEXT], "options": {"temperature": 2.0, "hypotheses": 4}}
    (drawn,) = letters_live.post(request).json()["translations"]
    seeded = {"text": [TEXT], "options": {"temperature": 2.0, "hypotheses": 4, "seed": drawn["seed"]}}
    assert translate_over_both(letters_live, seeded) == [drawn]


def test_what_was_not_asked_for_is_not_told(letters_live: LiveService) -> None:
    (translation,) = translate_over_both(letters_live, {"text": [TEXT]})
    assert {"tokens", "alignments", "seed"}.isdisjoint(translation)
    assert translation["alternatives"] == []


@pytest.fixture(scope="module")
def toy_sentences(toy_server: LiveService) -> list[str]:
    """A few sentences that the toy model translates into words of its vocabulary."""
    del toy_server
    return list(toy_test_sentences()[:8])


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({}, 0.0), ({"temperature": 1.0, "seed": 3, "hypotheses": 4}, 0.0), ({"beam_size": 4, "hypotheses": 4}, 1e-5)],
    ids=["greedy", "sampled", "beam"],
)
def test_a_translation_has_the_score_that_it_was_found_with(
    toy_server: LiveService, toy_run: RunFolder, toy_sentences: list[str], options: dict[str, Any], tolerance: float
) -> None:
    """Token by token and bit for bit; a beam's scores differ by rounding, because a graph computes their logarithms.

    Texts whose tokens differ from the chosen ones are excluded: they are another translation.
    """
    tokenizer = toy_run.load().tokenizer
    compared = 0
    for sentence in toy_sentences:
        request = {"text": [sentence], "options": {**options, "token_scores": True}}
        (translation,) = translate_over_both(toy_server, request)
        for found in (translation, *translation["alternatives"]):
            pieces = [token["piece"] for token in found["tokens"]]
            if pieces != [*tokenizer.pieces(tokenizer.encode(found["text"])), "</s>"]:
                continue
            (score,) = score_over_both(toy_server, {"pairs": [{"text": sentence, "translation": found["text"]}]})
            assert [token["piece"] for token in score["tokens"]] == pieces
            expected = [token["log_probability"] for token in found["tokens"]]
            actual = [token["log_probability"] for token in score["tokens"]]
            assert actual == pytest.approx(expected, rel=tolerance, abs=tolerance)
            assert score["score"] == pytest.approx(found["score"], rel=tolerance, abs=tolerance)
            assert score["source_tokens"] == translation["source_tokens"]
            assert score["target_tokens"] == found["target_tokens"]
            compared += 1
    assert compared >= len(toy_sentences)


def test_pairs_are_scored_each_by_itself(toy_server: LiveService, toy_sentences: list[str]) -> None:
    """A right translation is more probable than a wrong or an empty one."""
    first = toy_sentences[0]
    right = toy_server.post({"text": first}).json()["translations"][0]["text"]
    pairs = [{"text": first, "translation": translation} for translation in (right, "mond", "")]
    scores = score_over_both(toy_server, {"pairs": pairs})
    for pair, score in zip(pairs, scores, strict=True):
        assert score_over_both(toy_server, {"pairs": [pair]}) == [score]
    assert scores[0]["score"] > max(score["score"] for score in scores[1:])
    assert [len(score["tokens"]) - score["target_tokens"] for score in scores] == [1, 1, 1]


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"pairs": []}, "pairs"),
        ({"pairs": [{"text": "moon", "translation": "mond"}] * 65}, "pairs"),
        ({"pairs": [{"text": " ", "translation": "mond"}]}, "pairs[0].text"),
        ({"pairs": [{"text": "moon", "translation": "mond\0"}]}, "pairs[0].translation"),
        ({"pairs": [{"text": "moon", "translation": "mond " * 24}]}, "pairs[0].translation"),
        ({"pairs": [{"text": "moon " * 40, "translation": "mond"}]}, "pairs[0].text"),
        ({"pairs": [{"text": "moon", "translation": "mond"}], "target_language": "fr"}, "target_language"),
    ],
    ids=str,
)
def test_pairs_that_cannot_be_scored_are_refused_by_name(
    toy_server: LiveService, request_fields: dict[str, Any], field: str
) -> None:
    assert refusal_of_both(toy_server, request_fields, "/v1/score")[0] == field


def test_requests_for_scores_are_counted_by_themselves(toy_server: LiveService) -> None:
    before = toy_server.metric("requests_total", method="score", outcome="ok")
    score_over_both(toy_server, {"pairs": [{"text": "moon", "translation": "mond"}]})
    toy_server.settle()
    assert toy_server.metric("requests_total", method="score", outcome="ok") == before + 2


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/score"])
def test_every_example_of_the_documentation_is_answered(toy_server: LiveService, path: str) -> None:
    operation = toy_server.get("/openapi.json").json()["paths"][path]["post"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    for example in examples.values():
        assert example["value"]["source_language"] == "en"
        assert toy_server.post(example["value"], path=path).status_code == 200


@pytest.fixture(scope="module")
def aligned_server(toy_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """The toy model with attention of two of its heads."""
    trained = toy_run.load()
    heads = (AttentionHead(layer=0, head=0), AttentionHead(layer=0, head=1))
    out, options = tmp_path_factory.mktemp("aligned") / "toy", BundleOptions("toy", alignment_heads=heads)
    bundle = export_model(trained.model, trained.tokenizer, out, options=options)
    models = load_models(ServeSettings(bundle=bundle.folder, engines=1, slots=8, alignments=True), bundle)
    with run_service(bundle.folder, models, alignments=True) as service:
        yield service


def test_a_trained_model_tells_where_it_looks(aligned_server: LiveService, toy_sentences: list[str]) -> None:
    options = {"alignments": True, "beam_size": 4, "coverage_penalty": 0.2}
    for translation in translate_over_both(aligned_server, {"text": toy_sentences[:1], "options": options}):
        weights = np.array(translation["alignments"])
        assert weights.shape == (translation["target_tokens"], translation["source_tokens"])
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)


def test_alignments_of_a_bundle_without_heads_are_refused_at_the_start(toy_bundle: Path) -> None:
    models = [Runtime(Sessions.load(Bundle.open(toy_bundle), threads=1), slots=2)]
    message = "alignments: the bundle has no alignment heads: export it with --align LAYER:HEAD, or serve it without"
    with pytest.raises(BundleError, match=message), run_service(toy_bundle, models, alignments=True):
        pass
