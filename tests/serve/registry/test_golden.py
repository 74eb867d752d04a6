"""A model that does not reproduce the golden sentences exactly never serves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import BundleError
from tests.support.fake_bundles import GOLDEN, direction, make_golden, write_bundle
from tests.support.fakes import FakeModel
from tests.support.live import run_service

WAYS = (direction("en-de", 4), direction("de-en", 5))


@pytest.mark.promise("R28")
@pytest.mark.parametrize(
    "change",
    [lambda ids: (*ids, 5), lambda ids: ids[:-1], lambda ids: (ids[0] + 1, *ids[1:])],
    ids=["one more", "one less", "another"],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_one_wrong_token_of_one_sentence_is_enough(
    tmp_path: Path, tokenizer: Tokenizer, side: str, change: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> None:
    """The error names the sentence and the side."""
    golden = list(make_golden(tokenizer))
    golden[1] = golden[1].model_copy(update={f"{side}_ids": change(getattr(golden[1], f"{side}_ids"))})
    bundle_path = write_bundle(tmp_path, tokenizer, tuple(golden))
    with pytest.raises(BundleError, match=f"sentence 1: {side} "), run_service(bundle_path):
        pass


def test_the_sentences_of_every_direction_are_verified(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with run_service(write_bundle(tmp_path, tokenizer, directions=WAYS)) as live:
        assert live.metric("sequences_finished_total") == 2 * len(GOLDEN)


def test_a_sentence_has_the_prefix_of_its_direction(tmp_path: Path, tokenizer: Tokenizer) -> None:
    golden = list(make_golden(tokenizer, WAYS))
    golden[-1] = golden[-1].model_copy(update={"source_language": "en", "target_language": "de"})
    bundle_path = write_bundle(tmp_path, tokenizer, tuple(golden), WAYS)
    with pytest.raises(BundleError, match="sentence 5: source "), run_service(bundle_path):
        pass


def test_a_bundle_without_golden_sentences_is_not_served(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(BundleError), run_service(write_bundle(tmp_path, tokenizer, ())):
        pass


def test_the_sentences_run_together_and_more_than_the_server_holds_in_groups(bundle_path: Path) -> None:
    for slots, most in ((4, 3), (1, 1)):
        model = FakeModel(slots)
        with run_service(bundle_path, [model], queue_limit=0) as live:
            assert live.metric("sequences_finished_total") == 3
        assert max(model.steps) == most


def test_golden_sentences_may_wait_for_longer_than_requests(bundle_path: Path) -> None:
    """The queue timeout of requests must not end the warm-up, or the server could not start."""
    with run_service(bundle_path, [FakeModel(1)], queue_limit=8, queue_timeout_seconds=1e-9) as live:
        assert live.get("/readyz").status_code == 200


def test_a_model_that_fails_never_serves(bundle_path: Path) -> None:
    model = FakeModel(4)
    model.encode_error = RuntimeError("broken")
    with pytest.raises(BundleError), run_service(bundle_path, [model]):
        pass
