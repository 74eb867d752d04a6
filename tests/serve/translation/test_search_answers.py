"""Responses of every kind of search over both interfaces equal those of the slow reference and of a trained model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.registry.engine_models import load_models
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.settings import ServeSettings
from tests.support.cases import cases
from tests.support.fake_reference import reference
from tests.support.fakes import BOS_ID, EOS_ID, next_attention
from tests.support.live import LiveService, run_service
from tests.support.search_reference import Found
from tests.support.toy import toy_test_sentences
from tests.support.wire import refusal_of_both, score_over_both, translate_over_both

CASES = cases(__file__)

TEXT = "ab ba"
LIMIT = 6
# Sentences that the toy model translates into words of its vocabulary.
SENTENCES = toy_test_sentences()[:8]


def search(letters: Tokenizer, text: str, **options: Any) -> list[Found]:
    return reference((*letters.encode(text), EOS_ID), SearchOptions(max_target_tokens=LIMIT, **options))


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
        *CASES["both interfaces give what the slow search finds"],
        {"temperature": 2.0, "seed": 2**64 - 1, "top_k": 4, "top_p": 0.75, "no_repeat_ngram_tokens": 2},
    ],
    ids=str,
)
def test_both_interfaces_give_what_the_slow_search_finds(
    letters_live: LiveService, letters: Tokenizer, options: dict[str, Any]
) -> None:
    texts = [TEXT, "b ab", "abba a bab"]
    request = {"text": texts, "options": {**options, "max_target_tokens": LIMIT, "token_scores": True}}
    for text, translation in zip(texts, translate_over_both(letters_live, request), strict=True):
        found = [translation, *translation["alternatives"]]
        for actual, hypothesis in zip(found, search(letters, text, **options), strict=True):
            assert_found(actual, hypothesis, letters)
        assert translation["source_tokens"] == len(letters.encode(text)) + 1
        assert translation.get("seed") == options.get("seed")


def test_suppressed_tokens_are_never_chosen(letters_live: LiveService, letters: Tokenizer) -> None:
    pieces = ("ab", "▁a", "b")
    options = {"max_target_tokens": LIMIT, "suppressed_tokens": list(pieces), "token_scores": True}
    (translation,) = translate_over_both(letters_live, {"text": [TEXT], "options": options})
    ids = tuple(letters.target_pieces.index(piece) for piece in pieces)
    assert_found(translation, search(letters, TEXT, suppressed_ids=ids)[0], letters)


def test_every_text_has_a_prefix_of_its_own(letters_live: LiveService, letters: Tokenizer) -> None:
    texts, prefixes = ["ab ba", "ab ba", "b ab"], ["ba b", "", "a"]
    request = {"text": texts, "target_prefix": prefixes, "options": {"max_target_tokens": LIMIT, "token_scores": True}}
    for text, prefix, translation in zip(texts, prefixes, translate_over_both(letters_live, request), strict=True):
        forced = tuple(letters.encode(prefix))
        assert_found(translation, search(letters, text, target_prefix=forced)[0], letters)
        assert translation["text"].startswith(prefix)


def test_relative_lengths_are_those_of_each_text(letters_live: LiveService) -> None:
    request = {"text": ["ab ba", "ab ab ba ab ba"], "options": {"min_target_ratio": 1.0, "max_target_ratio": 1.0}}
    for translation in translate_over_both(letters_live, request):
        assert translation["target_tokens"] == translation["source_tokens"]


def test_alignments_have_a_row_for_each_token_and_a_column_for_each_source_token(
    letters_live: LiveService, letters: Tokenizer
) -> None:
    """Special tokens have no column."""
    options = {"beam_size": 3, "hypotheses": 2, "max_target_tokens": LIMIT, "alignments": "tokens"}
    (translation,) = translate_over_both(letters_live, {"text": [TEXT], "options": options})
    found = [translation, *translation["alternatives"]]
    for actual, expected in zip(found, search(letters, TEXT, beam_size=3, hypotheses=2), strict=True):
        histories = [np.array((BOS_ID, *expected.target_ids[:index])) for index in range(len(expected.target_ids))]
        rows = [next_attention(translation["source_tokens"], history).tolist() for history in histories]
        (alignment,) = actual["alignments"]
        assert alignment["weights"] == [row[:-1] for row in rows]
        assert len(alignment["source"]) == translation["source_tokens"] - 1
        assert len(alignment["target"]) == actual["target_tokens"]


@pytest.mark.parametrize("unit", ["words", "tokens"])
def test_alignments_of_several_sentences_are_those_of_each_alone(letters_live: LiveService, unit: str) -> None:
    options = {"beam_size": 2, "max_target_tokens": LIMIT, "alignments": unit}
    lines = [TEXT, "b ab", "abba a bab"]
    separate = translate_over_both(letters_live, {"text": lines, "options": options})
    (joined,) = translate_over_both(letters_live, {"text": ["\n".join(lines)], "options": options})
    assert len(joined["alignments"]) == len(lines)
    place = 0
    for line, alone, alignment in zip(lines, separate, joined["alignments"], strict=True):
        assert alignment["weights"] == alone["alignments"][0]["weights"]
        assert alignment["links"] == alone["alignments"][0]["links"]
        spans = alone["alignments"][0]["source"]
        assert alignment["source"] == [{name: offset + place for name, offset in span.items()} for span in spans]
        place += len(line) + 1


def test_a_seed_of_the_server_reproduces_its_samples(letters_live: LiveService) -> None:
    request = {"text": [TEXT], "options": {"temperature": 2.0, "hypotheses": 4}}
    (sampled,) = letters_live.post(request).json()["translations"]
    seeded = {"text": [TEXT], "options": {"temperature": 2.0, "hypotheses": 4, "seed": sampled["seed"]}}
    assert translate_over_both(letters_live, seeded) == [sampled]


def test_fields_that_were_not_requested_are_left_out(letters_live: LiveService) -> None:
    (translation,) = translate_over_both(letters_live, {"text": [TEXT]})
    assert {"tokens", "alignments", "seed"}.isdisjoint(translation)
    assert translation["alternatives"] == []


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [pytest.param(*row, id=name) for name, row in CASES["a translation has the score that it was found with"].items()],
)
def test_a_translation_has_the_score_that_it_was_found_with(
    toy_server: LiveService, toy_run: RunFolder, options: dict[str, Any], tolerance: float
) -> None:
    """Token by token and bit for bit; a beam's scores differ by rounding, because a graph computes their logarithms.

    Texts whose tokens differ from the chosen ones are excluded: they are another translation.
    """
    tokenizer = toy_run.load().tokenizer
    compared = 0
    for sentence in SENTENCES:
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
    assert compared >= len(SENTENCES)


def test_pairs_are_scored_each_by_itself(toy_server: LiveService) -> None:
    """A right translation is more probable than a wrong or an empty one."""
    first = SENTENCES[0]
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
        *CASES["pairs that cannot be scored are refused by name"],
        ({"pairs": [{"text": "moon", "translation": "mond"}] * 65}, "pairs"),
        ({"pairs": [{"text": "moon", "translation": "mond " * 24}]}, "pairs[0].translation"),
        ({"pairs": [{"text": "moon " * 40, "translation": "mond"}]}, "pairs[0].text"),
    ],
    ids=str,
)
def test_pairs_that_cannot_be_scored_are_refused_by_name(
    toy_server: LiveService, request_fields: dict[str, Any], field: str
) -> None:
    assert refusal_of_both(toy_server, request_fields, "/v1/score")[0] == field


def test_requests_for_scores_are_counted_by_themselves(toy_server: LiveService) -> None:
    toy_server.settle()
    before = toy_server.metric("requests_total", method="score", outcome="ok")
    score_over_both(toy_server, {"pairs": [{"text": "moon", "translation": "mond"}]})
    toy_server.settle()
    assert toy_server.metric("requests_total", method="score", outcome="ok") == before + 2


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/score"])
def test_every_example_of_the_documentation_is_answered(toy_server: LiveService, path: str) -> None:
    operation = toy_server.get("/openapi.json").json()["paths"][path]["post"]
    for example in operation["requestBody"]["content"]["application/json"]["examples"].values():
        assert example["value"]["source_language"] == "en"
        assert toy_server.post(example["value"], path=path).status_code == 200


def test_a_real_model_returns_its_attention_to_each_source_token(aligned_bundle: Bundle) -> None:
    settings = ServeSettings(bundle=aligned_bundle.folder, engines=1, slots=8, alignments=True)
    models = load_models(settings, aligned_bundle)
    options = {"alignments": "tokens", "beam_size": 4, "coverage_penalty": 0.2}
    with run_service(aligned_bundle.folder, models, alignments=True) as live:
        (translation,) = translate_over_both(live, {"text": ["alpha beta"], "options": options})
    (alignment,) = translation["alignments"]
    weights = np.array(alignment["weights"])
    assert weights.shape == (translation["target_tokens"], translation["source_tokens"] - 1)
    assert (weights.sum(axis=1) < 1).all()  # the rest is the attention to the end token
    assert (weights.sum(axis=1) > 0).all()


def test_alignments_of_a_bundle_without_heads_are_refused_at_the_start(toy_bundle: Path) -> None:
    models = [load_sessions(Bundle.open(toy_bundle), threads=1).runtime(slots=2)]
    with (
        pytest.raises(BundleError, match=r"alignments: .*--align LAYER:HEAD"),
        run_service(toy_bundle, models, alignments=True),
    ):
        pass
