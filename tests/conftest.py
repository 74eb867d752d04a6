"""Fixtures that many tests share: a tiny tokenizer, a live service with fake models, tiny models and their bundles."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from export.bundle import Bundle
from model.tokenizer import Tokenizer, train_tokenizer
from tests.fakes import EOS_ID, translate
from tests.live import LONG_TEXT, MAX_TARGET_TOKENS, LiveService, run_service, write_bundle

if TYPE_CHECKING:
    from model.run import RunFolder

# For tiny models a second thread is only something to wait for, and on busy CPUs to wait long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test fails because the machine is busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    words = ["alpha", "beta", "gamma", "delta", "one", "two", "three", "house", "garden", "river"]
    lines = [f"{first} {second} {third}." for first in words for second in words for third in words[:4]]
    tokenizer = train_tokenizer(lines, vocabulary_size=60)
    target_ids, _, _ = translate((*tokenizer.encode(LONG_TEXT), EOS_ID), MAX_TARGET_TOKENS)
    assert len(target_ids) > 5, "with this tokenizer, another text has to be the long one"
    return tokenizer


@pytest.fixture(scope="session")
def bundle_path(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose golden sentences are what the fake model answers; its graphs are never opened."""
    return write_bundle(tmp_path_factory.mktemp("bundle"), tokenizer)


@pytest.fixture
def live(bundle_path: Path) -> Iterator[LiveService]:
    """A ready service with small limits, in front of two engines with fake models."""
    with run_service(bundle_path) as service:
        yield service


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> "RunFolder":
    """A really trained tiny model; its data lie beside it."""
    from tests.toy import train_toy  # noqa: PLC0415 - tests of serving alone start without torch

    return train_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def toy_bundle(toy_run: "RunFolder", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy model as it is served."""
    from export.make_bundle import make_bundle  # noqa: PLC0415 - see above
    from tests.toy import toy_test_sentences  # noqa: PLC0415 - see above

    out = tmp_path_factory.mktemp("bundles") / "toy"
    return make_bundle(toy_run.load(), list(toy_test_sentences()[:20]), out, "toy").folder


@pytest.fixture(scope="session")
def wide_bundle(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """An untrained model of some width, whose translations tell its rows apart."""
    from tests.toy import WIDE, export_model, random_model  # noqa: PLC0415 - see above

    limits = {"max_source_tokens": 40, "max_target_tokens": 24}
    model = random_model(1, tokenizer.vocabulary_size, **WIDE, **limits)
    return export_model(model, tokenizer, tmp_path_factory.mktemp("bundles") / "wide")
