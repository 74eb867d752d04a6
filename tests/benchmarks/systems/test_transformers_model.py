"""Models converted to `transformers` return the same logits, for every option it supports."""

from typing import Any

import pytest
import torch

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.transformers_system import check_known, to_transformers
from model.data.batches import pad
from tests.support.toy import OPTIONS, random_model, random_sources

KNOWN = ("default", "pre-norm", "gelu", "silu", "learned", "unscaled", "output bias", "deep encoder", "deep decoder")


@pytest.mark.parametrize("options", KNOWN)
def test_the_logits_are_equal(options: str) -> None:
    model = random_model(3, **{**OPTIONS[options], "norm_embeddings": False})
    converted = to_transformers(model)
    sources = pad(random_sources(model, 1, 8), model.pad_id)
    targets = torch.randint(4, model.vocabulary_size, (8, 6), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        expected = model(sources, targets)
        found = converted(input_ids=sources, attention_mask=sources != model.pad_id, decoder_input_ids=targets).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", ["default", "pre-norm"])
def test_parameters_are_not_copied(options: str) -> None:
    """Copies would distort the measured memory."""
    model = random_model(3, **{**OPTIONS[options], "norm_embeddings": False})
    converted = to_transformers(model)
    shared = {parameter.data_ptr() for parameter in model.parameters()}
    positions = {model.source_positions.table.data_ptr(), model.target_positions.table.data_ptr()}
    assert {parameter.data_ptr() for parameter in converted.parameters()} == shared | positions


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"norm": "rms"}, "norm: rms: expected layer"),
        ({"norm_embeddings": True}, "norm_embeddings: True: expected False"),
        ({"activation": "swiglu"}, "activation: swiglu: expected relu or gelu or silu"),
        ({"tie_embeddings": False}, "tie_embeddings: False: expected True"),
    ],
)
def test_unsupported_options_are_rejected(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BenchmarkError, match=f"^random: {problem}"):
        check_known("random", random_model(3, **options).config)
