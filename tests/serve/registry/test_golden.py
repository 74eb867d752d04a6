"""A model that does not reproduce the golden sentences exactly never serves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from model.tokenizer.tokenizer import Tokenizer
from serve.bundle.manifest import BundleDirection, GoldenSentence
from serve.errors import InternalError
from serve.registry.pipeline import GoldenMismatchError
from tests.support.fakes import FakeModel
from tests.support.live import GOLDEN, make_golden, run_service, write_bundle


def serve_golden(folder: Path, tokenizer: Tokenizer, golden: tuple[GoldenSentence, ...]) -> None:
    """Runs a service with these golden sentences; returns if it becomes ready."""
    with run_service(write_bundle(folder, tokenizer, golden)) as live:
        assert live.get("/readyz").status_code == 200


def test_the_right_sentences_make_the_service_ready(tmp_path: Path, tokenizer: Tokenizer) -> None:
    serve_golden(tmp_path, tokenizer, make_golden(tokenizer))


@pytest.mark.parametrize(
    "change",
    [lambda ids: (*ids, 5), lambda ids: ids[:-1], lambda ids: (ids[0] + 1, *ids[1:])],
    ids=["one more", "one less", "another"],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_one_wrong_token_of_one_sentence_is_enough(
    tmp_path: Path, tokenizer: Tokenizer, side: str, change: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> None:
    golden = list(make_golden(tokenizer))
    ids = golden[1].source_ids if side == "source" else golden[1].target_ids
    golden[1] = golden[1].model_copy(update={f"{side}_ids": change(ids)})
    with pytest.raises(GoldenMismatchError, match=f"^golden sentence 1: {side} tokens are "):
        serve_golden(tmp_path, tokenizer, tuple(golden))


WAYS = (
    BundleDirection(source="en", target="de", source_prefix=(4,)),
    BundleDirection(source="de", target="en", source_prefix=(5,)),
)


def test_the_sentences_of_every_direction_are_tried(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with run_service(write_bundle(tmp_path, tokenizer, directions=WAYS)) as live:
        assert live.metric("sequences_finished_total") == 2 * len(GOLDEN)


def test_a_sentence_has_the_prefix_of_its_direction(tmp_path: Path, tokenizer: Tokenizer) -> None:
    golden = list(make_golden(tokenizer, WAYS))
    languages = {"source_language": "en", "target_language": "de"}
    golden[-1] = golden[-1].model_copy(update=languages)
    bundle_path = write_bundle(tmp_path, tokenizer, tuple(golden), WAYS)
    with (
        pytest.raises(GoldenMismatchError, match=r"^golden sentence 5: source tokens are \(4, .*expected \(5, "),
        run_service(bundle_path),
    ):
        pass


def test_a_bundle_without_golden_sentences_is_not_served(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(GoldenMismatchError, match="none, expected at least one"):
        serve_golden(tmp_path, tokenizer, ())


def test_more_sentences_than_the_server_holds_are_tried_in_groups(tmp_path: Path, tokenizer: Tokenizer) -> None:
    bundle_path = write_bundle(tmp_path, tokenizer)
    with run_service(bundle_path, [FakeModel(1)], queue_limit=0) as live:
        assert live.metric("sequences_finished_total") == 3


def test_the_sentences_run_together(bundle_path: Path) -> None:
    model = FakeModel(4)
    with run_service(bundle_path, [model]):
        assert max(model.steps) == 3


def test_golden_sentences_may_wait_for_longer_than_requests(bundle_path: Path) -> None:
    """The queue timeout of requests must not end the warm-up, or the server could not start."""
    with run_service(bundle_path, [FakeModel(1)], queue_limit=8, queue_timeout_seconds=1e-9) as live:
        assert live.get("/readyz").status_code == 200


def test_a_model_that_fails_never_serves(bundle_path: Path) -> None:
    model = FakeModel(4)
    model.encode_error = RuntimeError("broken")
    with pytest.raises(InternalError), run_service(bundle_path, [model]):
        pass
