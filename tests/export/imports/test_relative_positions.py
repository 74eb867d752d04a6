"""Imported models with relative positions, other heads and other gates generate the tokens of CTranslate2."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from ctranslate2.specs.common_spec import Activation
from transformers.models.t5.modeling_t5 import T5Attention

from dragoman.export.graphs.native.models import DOMAIN, STANDARD_DOMAIN
from dragoman.export.graphs.options import UnsupportedGraphError
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.distances import bias_per_distance, vectors_per_distance
from dragoman.export.source_model import Exportable
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.runtime.sessions import load_sessions
from tests.conftest import WORDS
from tests.support.cases import cases
from tests.support.comparisons import targets, write_imported
from tests.support.ctranslate2_models import translate, write_model
from tests.support.ctranslate2_specs import random_spec
from tests.support.live import run_service

CASES = cases(__file__)

LIMIT = 20
# The limit of one request.
MAX_TEXTS = 40
OPTIONS = ImportOptions("en", "de", max_source_tokens=80, max_target_tokens=LIMIT)
NATIVE: dict[str, dict[str, Any]] = {
    "RMS normalization": {"rms_norm": True},
    "two key heads": {"num_heads_kv": 2},
    "one key head": {"num_heads_kv": 1, "rms_norm": True, "ffn_glu": True, "activation": Activation.SWISH},
}
STANDARD: dict[str, dict[str, Any]] = {
    "vectors": {"relative_position": True},
    "vectors after normalization": {"relative_position": True, "pre_norm": False},
    "bias": {"relative_attention_bias": True, "rms_norm": True},
    "T5": {"relative_attention_bias": True, "rms_norm": True, "ffn_glu": True, "activation": Activation.GELUTanh},
    "wide heads": {"head_dim": 24},
    "two key heads and vectors": {"relative_position": True, "num_heads_kv": 2},
    "gate of GELU": {"ffn_glu": True, "activation": Activation.GELU},
}
Texts = tuple[str, ...]


@pytest.fixture(scope="module")
def texts(pytestconfig: pytest.Config) -> Texts:
    random = np.random.default_rng(1)
    count = 200 if pytestconfig.getoption("thorough") else 30
    return tuple({" ".join(random.choice(WORDS, random.integers(1, 12))): None for _ in range(count)})


@pytest.mark.parametrize("kind", [*NATIVE, *STANDARD])
def test_every_token_is_that_of_ctranslate2(kind: str, tokenizer: Tokenizer, texts: Texts, tmp_path: Path) -> None:
    pieces = tokenizer.source_pieces
    folder = write_model(tmp_path / "m", random_spec(pieces, **{**NATIVE, **STANDARD}[kind]), tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, OPTIONS)
    bundle = write_imported(exportable, tmp_path / "bundle", texts[:10])
    sources = [exportable.source_ids((), text) for text in texts]
    given = [[pieces[token] for token in source[:-1]] for source in sources]
    for beam_size in (1, 4):
        ours = [[pieces[token] for token in target] for target in targets(bundle, sources, beam_size)]
        pairs = list(zip(ours, translate(folder, given, beam_size, LIMIT, 1.0), strict=True))
        # CTranslate2's beam ranks a hypothesis that the limit cuts like those that end.
        different = [(mine, expected) for mine, expected in pairs if mine != expected]
        assert [pair for pair in different if beam_size == 1 or not len(pair[0]) < len(pair[1]) == LIMIT] == []
        assert len(different) <= len(pairs) / 10
        assert len({tuple(mine) for mine in ours}) > len(texts) / 5, "otherwise the translations tell nothing"


@pytest.fixture(scope="module")
def shaw(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Exportable:
    spec = random_spec(tokenizer.source_pieces, relative_position=True)
    return import_ctranslate2(write_model(tmp_path_factory.mktemp("shaw") / "m", spec, tokenizer=tokenizer), OPTIONS)


@pytest.mark.parametrize("kind", ["vectors", "T5"])
def test_golden_sentences_are_those_of_graphs(kind: str, tokenizer: Tokenizer, texts: Texts, tmp_path: Path) -> None:
    """The search in NumPy makes them."""
    spec = random_spec(tokenizer.source_pieces, seed=6, **STANDARD[kind])
    exportable = import_ctranslate2(write_model(tmp_path / "m", spec, tokenizer=tokenizer), OPTIONS)
    bundle = write_imported(exportable, tmp_path / "bundle", texts[:10])
    expected = [sentence.target_ids for sentence in bundle.golden]
    assert targets(bundle, [sentence.source_ids for sentence in bundle.golden], 1) == expected


def test_a_translation_does_not_depend_on_its_batch(shaw: Exportable, texts: Texts, tmp_path: Path) -> None:
    bundle = write_imported(shaw, tmp_path / "bundle", texts[:10], precision="int8")
    sources = [shaw.source_ids((), text) for text in texts]
    assert targets(bundle, sources, 4) == targets(bundle, sources, 4, together=4)


def test_int8_changes_few_translations(shaw: Exportable, texts: Texts, tmp_path: Path) -> None:
    sources = [shaw.source_ids((), text) for text in texts]
    bundles = (write_imported(shaw, tmp_path / kind, texts[:10], precision=kind) for kind in ("fp32", "int8"))
    floats, integers = (targets(bundle, sources, 1) for bundle in bundles)
    assert sum(ours == theirs for ours, theirs in zip(integers, floats, strict=True)) > len(texts) / 4


def test_graphs_are_native_exactly_if_operators_suffice(tokenizer: Tokenizer, texts: Texts, tmp_path: Path) -> None:
    for kind, domain in (("two key heads", DOMAIN), ("vectors", STANDARD_DOMAIN)):
        spec = random_spec(tokenizer.source_pieces, **{**NATIVE, **STANDARD}[kind])
        exportable = import_ctranslate2(write_model(tmp_path / kind, spec, tokenizer=tokenizer), OPTIONS)
        bundle = write_imported(exportable, tmp_path / f"{kind} bundle", texts[:10])
        for path in (bundle.encoder_path, bundle.decoder_path):
            assert [node.domain for node in onnx.load(path, load_external_data=False).graph.node] == [domain]


def test_the_server_runs_standard_graphs(shaw: Exportable, texts: Texts, tmp_path: Path) -> None:
    bundle, texts = write_imported(shaw, tmp_path / "bundle", texts[:10]), texts[:MAX_TEXTS]
    expected = [shaw.tokenizer.decode(ids) for ids in targets(bundle, [shaw.source_ids((), text) for text in texts], 1)]
    with run_service(bundle.folder, [load_sessions(bundle, threads=1).runtime(slots=8)]) as live:
        answer = live.call(TranslateRequest(text=texts, source_language="en", target_language="de"))
    assert [translation.text for translation in answer.translations] == expected


def test_other_variants_than_cpu_are_refused(shaw: Exportable, texts: Texts, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedGraphError, match="variant: cuda: expected cpu"):
        write_imported(shaw, tmp_path / "bundle", texts[:10], variant="cuda", precision="fp16")


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 12), (32, 200), (64, 256)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_biases_of_all_distances_are_those_of_transformers(buckets: int, farthest: int, bidirectional: bool) -> None:
    positions = 600
    table = np.arange(buckets, dtype=np.float32)[:, None]
    found = bias_per_distance(table, positions, farthest, bidirectional=bidirectional)
    distances = torch.arange(1 - positions, positions)
    expected = T5Attention._relative_position_bucket(distances, bidirectional, buckets, farthest)
    known = distances <= positions if bidirectional else distances <= 0
    assert found[known.numpy(), 0].tolist() == expected[known].tolist()


def test_a_distance_beyond_the_table_has_the_vector_of_its_end() -> None:
    table = np.arange(5, dtype=np.float32)[:, None]
    assert vectors_per_distance(table, 5)[:, 0].tolist() == [0, 0, 0, 1, 2, 3, 4, 4, 4]
    assert vectors_per_distance(table, 2)[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "expected"),
    [*CASES["other options are refused"], ({"activation": Activation.Tanh}, "encoder/activation: tanh: expected ReLU")],
)
def test_other_options_are_refused(change: dict[str, Any], expected: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", random_spec(tokenizer.source_pieces, **change), tokenizer=tokenizer)
    with pytest.raises(ImportedModelError) as refused:
        import_ctranslate2(folder, OPTIONS)
    assert expected in str(refused.value)
