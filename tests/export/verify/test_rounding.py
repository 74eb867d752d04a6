"""The rounded PyTorch model rounds exactly what an 8-bit graph rounds."""

from typing import Any

import pytest
import torch

from export.verify.reference import rounded, rounded_about_zero, rounded_in, rounded_rows
from model.data.batches import pad
from serve.bundle.manifest import ActivationRange
from tests.support.recurrent_models import random_recurrent
from tests.support.toy import random_model, random_sources


def test_a_row_becomes_whole_multiples_of_a_127th_of_its_largest_magnitude() -> None:
    values = torch.tensor([[0.5, -127.0, 3.6], [0.0, 0.0, 0.0], [1.27, 0.014, -0.016]])
    expected = torch.tensor([[0.0, -127.0, 4.0], [0.0, 0.0, 0.0], [1.27, 0.01, -0.02]])
    assert torch.allclose(rounded_rows(values), expected)


def test_a_value_becomes_the_nearest_of_256_in_the_range() -> None:
    known = ActivationRange(smallest=-0.55, largest=2.0)  # steps of 0.01
    values = torch.tensor([-3.0, -0.55, -0.004, 0.0, 0.126, 1.999, 7.0])
    assert torch.allclose(rounded_in(known, values), torch.tensor([-0.55, -0.55, 0.0, 0.0, 0.13, 2.0, 2.0]))


@pytest.mark.parametrize(("smallest", "largest"), [(-0.5, 1.27), (-1.27, 0.5)])
def test_a_cached_value_becomes_the_nearest_of_256_around_zero(smallest: float, largest: float) -> None:
    known = ActivationRange(smallest=smallest, largest=largest)  # steps of 0.01
    values = torch.tensor([-3.0, -1.27, -0.004, 0.0, 0.126, 1.269, 7.0])
    assert torch.allclose(rounded_about_zero(known, values), torch.tensor([-1.28, -1.27, 0.0, 0.0, 0.13, 1.27, 1.27]))


@pytest.mark.parametrize("name", ["decoder.0.self_attention.value", "decoder.0.cross_attention.key"])
@torch.inference_mode()
def test_keys_and_values_are_rounded_where_a_range_is_known(name: str) -> None:
    model = random_model(3)
    sources, targets = pad(random_sources(model, 1, 5)), torch.tensor([[1, 5, 6, 7]] * 5)
    cached = {name: ActivationRange(smallest=-0.01, largest=0.01)}
    assert not torch.equal(rounded(model, {}, cached)(sources, targets), rounded(model, {}, {})(sources, targets))


@torch.inference_mode()
def test_a_known_range_replaces_the_scales_of_rows() -> None:
    model = random_model(3)
    sources, targets = pad(random_sources(model, 1, 5)), torch.tensor([[1, 5, 6, 7]] * 5)
    narrow = {"encoder.0.feed_forward.inner": ActivationRange(smallest=-0.01, largest=0.01)}
    assert not torch.equal(rounded(model, narrow, {})(sources, targets), rounded(model, {}, {})(sources, targets))


@pytest.mark.parametrize("options", [{}, {"tie_embeddings": False}, {"norm_position": "pre", "activation": "swiglu"}])
@torch.inference_mode()
def test_rounding_changes_logits_but_not_the_model(options: dict[str, Any]) -> None:
    model = random_model(3, **options)
    sources = pad(random_sources(model, 1, 5))
    targets = torch.tensor([[1, 5, 6, 7]] * 5)
    before = model(sources, targets)
    difference = (rounded(model, {}, {})(sources, targets) - before).abs().max()
    assert 0 < difference < before.std()
    assert torch.equal(model(sources, targets), before)


def test_all_matrices_are_rounded_once() -> None:
    copy = rounded(random_model(3, tie_embeddings=False), {}, {})
    for name, parameter in copy.named_parameters():
        if parameter.dim() > 1:
            largest = parameter.abs().amax(dim=1, keepdim=True)
            levels = parameter / largest * 127
            assert torch.allclose(levels, levels.round(), atol=1e-3), name


def test_only_a_transformer_is_rounded() -> None:
    with pytest.raises(TypeError, match="Recurrent: expected a Transformer"):
        rounded(random_recurrent(12), {}, {})
