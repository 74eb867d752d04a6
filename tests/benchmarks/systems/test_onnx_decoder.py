"""Both decode loops do the same work: the same sources and the same tokens, exactly as many as requested."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.systems.ctranslate2_system import CTranslate2Decoder, spec_of, write_model
from benchmarks.systems.onnx_decoder import OnnxDecoder
from benchmarks.systems.translating import draw_sources
from model.network.transformer import Transformer
from model.run import RunFolder
from model.tokenizer.tokenizer import EOS_ID

THREADS, ROWS = 2, 3
SOURCE_TOKENS, TARGET_TOKENS = 9, 20
TASK = {"seed": 1, "rows": ROWS, "source_tokens": SOURCE_TOKENS, "target_tokens": TARGET_TOKENS}


@pytest.fixture(scope="module", name="system")
def _system(toy_bundle: Path) -> OnnxDecoder:
    return OnnxDecoder(str(toy_bundle), THREADS, ROWS)


@pytest.fixture(scope="module", name="baseline")
def _baseline(toy_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> CTranslate2Decoder:
    trained = toy_run.load()
    assert isinstance(trained.model, Transformer)
    spec = spec_of(trained.model, trained.tokenizer.source_pieces)
    return CTranslate2Decoder(str(write_model(tmp_path_factory.mktemp("baselines") / "toy", spec)), THREADS, "float32")


def test_both_choose_the_same_tokens(system: OnnxDecoder, baseline: CTranslate2Decoder, toy_run: RunFolder) -> None:
    """The targets are longer than translations, so that both must forbid EOS."""
    vocabulary_size = toy_run.load().tokenizer.vocabulary_size
    sources = draw_sources(1, THREADS * ROWS, SOURCE_TOKENS, vocabulary_size, EOS_ID)
    decoded = np.concatenate(system.decode(sources, TARGET_TOKENS))
    assert decoded.shape == (THREADS * ROWS, TARGET_TOKENS)
    assert np.array_equal(decoded, baseline.decode(sources, TARGET_TOKENS))


@pytest.mark.parametrize("times", [1, 3])
def test_both_count_every_token_of_every_thread(system: OnnxDecoder, baseline: CTranslate2Decoder, times: int) -> None:
    tokens = times * THREADS * ROWS * TARGET_TOKENS
    assert system.plan(**TASK)(times) == tokens
    assert baseline.plan(**TASK)(times) == tokens
