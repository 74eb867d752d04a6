"""A training step: the paper's optimizer and schedule, and the remaining batches after a resume."""

from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from lightning import Trainer
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dragoman.model.config import Direction, RunConfig, TrainingConfig, TransformerConfig
from dragoman.model.data.batches import TokenizedPairs
from dragoman.model.training.loss import cooldown, inverse_square_root
from dragoman.model.training.module import TranslationData, TranslationModule


def make_module(**training: float) -> TranslationModule:
    model = TransformerConfig(d_model=16, d_ff=16, heads=2, encoder_layers=1, decoder_layers=1)
    options = TrainingConfig.model_validate(training)
    directions = (Direction(source="en", target="de"),)
    return TranslationModule(RunConfig(directions=directions, model=model, training=options), 20)


def make_data(pairs: TokenizedPairs) -> TranslationData:
    """Returns data whose epochs have the same pairs."""
    return TranslationData(lambda _epoch: pairs, pairs, TrainingConfig(batch_tokens=8))


def configure(module: TranslationModule) -> tuple[Optimizer, LRScheduler]:
    configured: Any = module.configure_optimizers()
    return configured["optimizer"], configured["lr_scheduler"]["scheduler"]


def test_the_optimizer_has_the_constants_of_the_paper() -> None:
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


def test_a_run_that_resumes_on_other_devices_takes_every_batch_once() -> None:
    """Seven steps on two devices, then one on one, then again two."""
    pairs = TokenizedPairs([[number] for number in range(4, 40)], [[number] for number in range(4, 40)])
    data = make_data(pairs)
    unbroken = [batch.source_ids.tolist() for batch in islice(data.train_dataloader(), 20)]
    for step, processes, resumed_processes, batches in ((7, 2, 1, 14), (8, 1, 2, 15)):
        data.trainer = cast("Trainer", SimpleNamespace(global_step=step, world_size=processes))
        state = data.state_dict()
        data = make_data(pairs)
        data.load_state_dict(state)
        data.trainer = cast("Trainer", SimpleNamespace(global_step=step, world_size=resumed_processes))
        assert next(iter(data.train_dataloader())).source_ids.tolist() == unbroken[batches]


def test_an_earlier_checkpoint_without_a_position_resumes_at_its_step() -> None:
    data = make_data(TokenizedPairs([[number] for number in range(4, 40)], [[number] for number in range(4, 40)]))
    unbroken = [batch.source_ids.tolist() for batch in islice(data.train_dataloader(), 20)]
    data.load_state_dict({"epoch_starts": [0]})
    data.trainer = cast("Trainer", SimpleNamespace(global_step=7, world_size=2))
    assert next(iter(data.train_dataloader())).source_ids.tolist() == unbroken[14]


def test_reading_batches_draws_no_random_number() -> None:
    """Otherwise a resumed run, which starts reading once more, would have another dropout."""
    data = make_data(TokenizedPairs([[4], [5]], [[4], [5]]))
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
