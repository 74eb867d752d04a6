"""What one training step computes: the paper's loss, optimiser and schedule, over the batches still to come."""

from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from lightning import Trainer
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from model.batches import TokenizedPairs
from model.config import Direction, RunConfig, TrainingConfig, TransformerConfig
from model.schedule import cooldown, inverse_square_root
from model.tokenizer import PAD_ID
from model.training import TranslationData, TranslationModule, token_loss
from tests import reference

LABELS = [[4, 2, 3, PAD_ID], [1, PAD_ID, PAD_ID, PAD_ID], [5, 5, 1, 3]]


def make_module(**training: float) -> TranslationModule:
    model = TransformerConfig(d_model=16, d_ff=16, heads=2, encoder_layers=1, decoder_layers=1)
    options = TrainingConfig.model_validate(training)
    directions = (Direction(source="en", target="de"),)
    return TranslationModule(RunConfig(directions=directions, model=model, training=options), 20)


def configure(module: TranslationModule) -> tuple[Optimizer, LRScheduler]:
    """Returns what a module trains with."""
    configured: Any = module.configure_optimizers()
    return configured["optimizer"], configured["lr_scheduler"]["scheduler"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_equals_the_reference(smoothing: float) -> None:
    torch.manual_seed(1)
    logits = 3 * torch.randn(3, 4, 7)
    expected = reference.label_smoothed_loss(logits.double().numpy(), LABELS, smoothing, PAD_ID)
    assert float(token_loss(logits, torch.tensor(LABELS), smoothing)) == pytest.approx(expected, rel=1e-5)


def test_what_stands_in_padding_does_not_count() -> None:
    labels = torch.tensor(LABELS)
    torch.manual_seed(1)
    logits = torch.randn(3, 4, 7)
    changed = logits.clone()
    changed[labels == PAD_ID] = 100 * torch.randn(int((labels == PAD_ID).sum()), 7)
    assert torch.equal(token_loss(changed, labels, 0.1), token_loss(logits, labels, 0.1))
    assert not torch.equal(token_loss(logits + torch.arange(7), labels, 0.1), token_loss(logits, labels, 0.1))


def test_a_model_that_is_sure_and_right_has_no_loss() -> None:
    labels = torch.tensor([[1, 2, 3]])
    logits = 100.0 * torch.nn.functional.one_hot(labels, 5)
    assert float(token_loss(logits, labels)) == pytest.approx(0, abs=1e-6)


def test_the_optimiser_has_the_constants_of_the_paper() -> None:
    module = make_module(warmup_steps=10)
    optimizer, _ = configure(module)
    (group,) = optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)
    assert {id(parameter) for parameter in group["params"]} == {id(parameter) for parameter in module.parameters()}


def test_every_step_has_the_rate_of_the_schedule() -> None:
    optimizer, schedule = configure(make_module(warmup_steps=4, max_steps=12, cooldown_steps=3, learning_rate=0.5))
    rates = []
    for _ in range(12):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    expected = [0.5 * inverse_square_root(step, 4) * cooldown(step, 12, 3) for step in range(1, 13)]
    np.testing.assert_allclose(rates, expected)


def test_a_resumed_run_reads_the_batches_from_its_step_on() -> None:
    pairs = TokenizedPairs([[number] for number in range(4, 40)], [[number] for number in range(4, 40)])
    data = TranslationData(pairs, pairs, batch_tokens=8, seed=1)
    unbroken = [batch.source_ids.tolist() for batch in islice(data.train_dataloader(), 20)]
    data.trainer = cast("Trainer", SimpleNamespace(global_step=7))
    resumed = [batch.source_ids.tolist() for batch in islice(data.train_dataloader(), 13)]
    assert resumed == unbroken[7:]


def test_reading_batches_draws_no_random_number() -> None:
    """Otherwise a resumed run, which begins to read once more, would drop other units."""
    pairs = TokenizedPairs([[4], [5]], [[4], [5]])
    data = TranslationData(pairs, pairs, batch_tokens=8, seed=1)
    before = torch.get_rng_state()
    next(iter(data.train_dataloader()))
    list(data.val_dataloader())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_random_numbers_go_on_where_the_checkpoint_was_made() -> None:
    module = make_module()
    checkpoint: dict[str, torch.Tensor] = {}
    module.on_save_checkpoint(checkpoint)
    first = torch.rand(3)
    module.on_load_checkpoint(checkpoint)
    assert torch.equal(torch.rand(3), first)
