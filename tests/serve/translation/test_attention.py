"""`/v1/attention`: the attention of any layer and head for given translations."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from dragoman.serve.translation.attention import NO_HEADS
from tests.support.live import LiveService, run_service

TEXT = "alpha beta gamma"
GIVEN = "gamma alpha"


@pytest.fixture(scope="module")
def attending(aligned_bundle: Bundle) -> Iterator[LiveService]:
    """A service of a model with native engines, and with two alignment heads in its first layer."""
    if reason := why_no_kernels():
        pytest.skip(reason)
    with run_service(aligned_bundle.folder, [], alignments=True) as live:
        yield live


def translated(live: LiveService) -> dict[str, Any]:
    """Returns the given translation with its alignment by words."""
    pairs = [{"text": TEXT, "translation": GIVEN}]
    tokens = live.post({"pairs": pairs}, path="/v1/score").json()["scores"][0]["target_tokens"]
    options = {"alignments": "words", "max_target_tokens": tokens}
    return dict(live.post({"text": TEXT, "target_prefix": GIVEN, "options": options}).json()["translations"][0])


def attend(live: LiveService, **fields: Any) -> dict[str, Any]:
    answer = live.post({"pairs": [{"text": TEXT, "translation": GIVEN}], **fields}, path="/v1/attention")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def weights(answer: dict[str, Any]) -> NDArray[np.float64]:
    return np.array(answer["attentions"][0]["alignment"]["weights"])


def test_the_mean_of_the_alignment_heads_is_the_alignment_of_the_translation(attending: LiveService) -> None:
    translation = translated(attending)
    heads = [attend(attending, layer=0, head=head) for head in (0, 1)]
    (expected,) = translation["alignments"]
    assert np.mean([weights(head) for head in heads], axis=0) == pytest.approx(np.array(expected["weights"]), abs=1e-6)
    for answer in heads:
        (attention,) = answer["attentions"]
        assert attention["translation"] == translation["text"]
        for side in ("source", "target"):
            assert attention["alignment"][side] == expected[side]


def test_without_layer_or_head_the_mean_over_all_of_them_is_returned(attending: LiveService) -> None:
    whole = attend(attending)
    each = [
        [weights(attend(attending, layer=layer, head=head)) for head in range(whole["heads"])]
        for layer in range(whole["layers"])
    ]
    assert weights(whole) == pytest.approx(np.mean(each, axis=(0, 1)), abs=1e-6)
    assert weights(attend(attending, layer=0)) == pytest.approx(np.mean(each[0], axis=0), abs=1e-6)
    assert weights(attend(attending, head=1)) == pytest.approx(np.mean(each, axis=0)[1], abs=1e-6)


def test_pairs_are_read_independently_and_counted_by_themselves(attending: LiveService) -> None:
    attending.settle()
    before = attending.metric("requests_total", method="attention", outcome="ok")
    pairs = [{"text": TEXT, "translation": "beta"}, {"text": "gamma", "translation": ""}]
    both = attending.post({"pairs": pairs}, path="/v1/attention").json()
    alone = [attending.post({"pairs": [pair]}, path="/v1/attention").json()["attentions"][0] for pair in pairs]
    assert both["attentions"] == alone
    assert both["attentions"][1]["alignment"]["target"] == []
    attending.settle()
    assert attending.metric("requests_total", method="attention", outcome="ok") == before + 3


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        *(({"layer": -1}, "layer"), ({"layer": 1000}, "layer"), ({"head": 1000}, "head"), ({"head": "0"}, "head")),
        ({"pairs": []}, "pairs"),
        ({"pairs": [{"text": "alpha", "translation": "beta " * 1000}]}, "pairs[0].translation"),
    ],
)
def test_requests_that_cannot_be_answered_are_refused_by_name(
    attending: LiveService, fields: dict[str, Any], field: str
) -> None:
    answer = attending.post({"pairs": [{"text": "alpha", "translation": "beta"}], **fields}, path="/v1/attention")
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_a_model_without_native_engines_refuses_in_words(live: LiveService) -> None:
    answer = live.post({"pairs": [{"text": "alpha", "translation": "beta"}]}, path="/v1/attention")
    assert (answer.status_code, answer.json()["detail"]) == (400, f"model: {NO_HEADS}")
