"""CTranslate2 models that Dragoman does not compute, and damaged ones, are refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.ctranslate2_files import Variable, read_model_file
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.cases import cases
from tests.support.ctranslate2_models import fill_with_zeros, make_model, model_file, refusal, write_model
from tests.support.mutations import damage

CASES = cases(__file__)


def refuse_spec(tmp_path: Path, tokenizer: Tokenizer, spec: TransformerSpec) -> str:
    return refusal(write_model(tmp_path / "m", spec, tokenizer=tokenizer)).removeprefix("model.bin: ")


def test_an_unsupported_computation_is_refused_by_name(tmp_path: Path, tokenizer: Tokenizer) -> None:
    spec = TransformerSpec.from_config(1, 4, activation=4)
    fill_with_zeros(spec, tokenizer.vocabulary_size)
    spec.register_source_vocabulary(list(tokenizer.source_pieces))
    spec.register_target_vocabulary(list(tokenizer.source_pieces))
    expected = "encoder/activation: GELU by sigmoid: expected ReLU, GELU by tanh, Swish, GELU"
    assert expected in refuse_spec(tmp_path, tokenizer, spec)


def set_rotary(spec: Any) -> None:
    for stack in (spec.encoder, spec.decoder):
        for layer in stack.layer:
            object.__setattr__(layer.self_attention, "rotary_dim", np.array(0, np.int32))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda spec: setattr(spec.decoder, "alibi", True), "decoder/alibi: 1: expected no such option"),
        (lambda spec: setattr(spec.decoder, "scale_outputs", np.float32(0.5)), "decoder/scale_outputs: 0.5: expected"),
        (set_rotary, "self_attention/rotary_dim: 0: expected no such option"),
        (
            lambda spec: setattr(spec.encoder, "num_heads", np.int16(8)),
            "decoder: heads: 4: expected 8 as in the encoder",
        ),
        (
            lambda spec: setattr(spec.encoder, "scale_embeddings", 3.0),
            "encoder/scale_embeddings: 3.0: expected 1 or 8.0",
        ),
        (lambda spec: setattr(spec.config, "decoder_start_token", None), "config.json: decoder_start_token: null"),
    ],
)
def test_unsupported_options_are_refused_by_name(
    tmp_path: Path, tokenizer: Tokenizer, change: Callable[[Any], object], expected: str
) -> None:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    change(spec)
    assert expected in refuse_spec(tmp_path, tokenizer, spec)


def test_a_decoder_only_model_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    spec = TransformerDecoderModelSpec.from_config(1, 4)
    fill_with_zeros(spec, tokenizer.vocabulary_size)
    spec.register_vocabulary(list(tokenizer.source_pieces))
    folder = write_model(tmp_path / "m", spec, tokenizer=tokenizer)
    assert refusal(folder).startswith("model.bin: TransformerDecoderSpec: expected TransformerSpec, an encoder-decoder")


@pytest.mark.parametrize("revision", [0, 8])
def test_another_revision_is_refused(model_folder: Path, revision: int) -> None:
    (model_folder / "model.bin").write_bytes(model_file({}, revision=revision))
    assert refusal(model_folder).startswith(f"model.bin: revision of TransformerSpec is {revision}, expected 1 to 7")


@pytest.mark.parametrize(("name", "content", "expected"), CASES["damaged files are named"])
def test_damaged_files_are_named(model_folder: Path, name: str, content: str | None, expected: str) -> None:
    damage(model_folder / name, None if content is None else content.encode())
    assert refusal(model_folder).startswith(expected)


def test_languages_must_be_options_if_the_files_lack_them(small_model: Path) -> None:
    assert refusal(small_model, ImportOptions()).startswith("source-language: None: expected an ISO 639 code")
    assert refusal(small_model, ImportOptions("en")).startswith("target-language: None: expected an ISO 639 code")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("encoder/layer_0/self_attention/linear_0/weight", np.zeros((5, 64)), "shape is (5, 64): expected 192 rows"),
        ("encoder/layer_0/self_attention/linear_0/bias", np.zeros(2), "linear_0/bias: shape is (2,), expected (192,)"),
        ("decoder/layer_1/ffn/linear_1/weight", np.zeros(64), "linear_1/weight: shape is (64,), expected a matrix"),
        ("decoder/layer_1/ffn/linear_1/weight", np.zeros((64, 5)), "feed_forward.outer.weight: shape is (64, 5)"),
        ("decoder/layer_1/ffn/layer_norm/gamma", None, "decoder/layer_1/ffn/layer_norm/gamma: missing"),
        ("encoder/layer_0/self_attention/linear_0/weight", None, "no layers: expected at least one each"),
        ("encoder/num_heads", None, "encoder/num_heads: missing"),
        ("decoder/projection/bias", np.zeros(5), "decoder/projection/bias: shape is (5,), expected (31,)"),
        ("encoder/position_encodings/encodings", np.zeros((80, 5)), "source_positions.table: shape is (70, 5)"),
        ("decoder/position_encodings/encodings", np.zeros((40, 64)), "max-source-tokens: 70: expected at most 40"),
    ],
)
def test_unfitting_variables_are_named(model_folder: Path, name: str, value: Variable | None, expected: str) -> None:
    path = model_folder / "model.bin"
    variables = {**read_model_file(path).variables, name: np.asarray(value, np.float32)}
    if value is None:
        del variables[name]
    if name.endswith("/weight"):
        variables.pop(name.replace("/weight", "/bias"), None)
    path.write_bytes(model_file(variables))
    assert expected in refusal(model_folder)
