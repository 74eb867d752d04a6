"""Training speed compared with a plain loop around `torch.nn.Transformer` of the same size.

Both train on the same batches in turns, others in every round. The plain loop is that of a tutorial: logits,
cross-entropy, backward, clip, Adam. Dragoman's side is `dragoman train` with Lightning and logging.
"""

import math
import tempfile
import time
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from benchmarks.harness.plan import Plan
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import in_turns
from model.config import Direction, RunConfig, TrainingConfig, TransformerConfig
from model.data.batches import Batch, BatchStream, TokenizedPairs
from model.network.attention import sinusoidal_positions
from model.run import RunFolder
from model.tokenizer.tokenizer import PAD_ID
from model.training.module import TranslationModule
from model.training.trainer import HardwareConfig, make_trainer

PAIRS = 10_000
# Lengths follow a gamma distribution like Multi30k's: 15 tokens on average, few above 30.
LENGTH_SHAPE, LENGTH_SCALE_TOKENS = 9.0, 1.7
SPEED = "training, tokens/s"
# Untimed first steps of a turn.
WARMUP_STEPS = 5


class ThroughputPlan(Plan):
    """The shape of both models, and their batches."""

    libraries = ("torch", "lightning", "numpy")

    model: TransformerConfig = Field(
        TransformerConfig(d_model=128, d_ff=256, heads=4, encoder_layers=4, decoder_layers=4, dropout=0.3),
        description="shape of both models",
    )
    vocabulary_size: int = Field(5000, gt=8, description="tokens of the vocabulary")
    batch_tokens: int = Field(1024, gt=0, description="maximum tokens of a batch")
    precision: Literal["32-true", "bf16-mixed"] = Field("32-true", description="precision of both")
    steps: int = Field(40, gt=0, description="timed optimizer steps of a turn")

    def measure(self) -> Report:
        """Measures source and target tokens per second of both, on other batches in every round."""
        trainers = {"dragoman": _train_dragoman, "torch.nn.Transformer": _train_plain}
        seeds = {name: count() for name in trainers}

        def train(name: str) -> Figures:
            batches = _batches(self, next(seeds[name]))
            tokens = sum(batch.count_tokens() for batch in batches[WARMUP_STEPS:])
            return {SPEED: tokens / trainers[name](self, batches)}

        found = in_turns(trainers, self.rounds, "throughput", train)
        table = Table(self.precision, found, "dragoman", (SPEED,))
        return Report([table], f"PyTorch threads: {torch.get_num_threads()}")


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` with embeddings, positions, masks and projection."""

    def __init__(self, config: TransformerConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(vocabulary_size, config.d_model, padding_idx=PAD_ID)
        self.dropout = nn.Dropout(config.dropout)
        sizes = (config.d_model, config.heads, config.encoder_layers, config.decoder_layers, config.d_ff)
        self.transformer = nn.Transformer(*sizes, config.dropout, batch_first=True)
        length = max(config.max_source_tokens, config.max_target_tokens + 1)
        self.register_buffer("positions", sinusoidal_positions(length, config.d_model))

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Maps ids [B, S] and [B, T] to logits [B, T, V]."""
        padding = source_ids == PAD_ID
        later = nn.Transformer.generate_square_subsequent_mask(target_ids.shape[1], device=source_ids.device)
        states = self.transformer(
            self._embed(source_ids),
            self._embed(target_ids),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(states, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Any:
        positions = self.get_buffer("positions")[: ids.shape[1]]
        return self.dropout(self.embedding(ids) * self.scale + positions)


class _Clock(Callback):
    """Times the training after its warm-up."""

    def __init__(self) -> None:
        self.started_seconds = 0.0
        self.seconds = 0.0

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == WARMUP_STEPS:
            self.started_seconds = time.perf_counter()
        self.seconds = time.perf_counter() - self.started_seconds


def _batches(plan: ThroughputPlan, seed: int) -> list[Batch]:
    random = np.random.default_rng(seed)
    lengths = 1 + random.gamma(LENGTH_SHAPE, LENGTH_SCALE_TOKENS, size=(PAIRS, 2)).astype(int)
    sides = [[random.integers(4, plan.vocabulary_size, size=n).tolist() for n in side] for side in lengths.T]
    stream = BatchStream(lambda _epoch: TokenizedPairs(*sides), plan.batch_tokens, seed)
    return list(islice(stream, WARMUP_STEPS + plan.steps))


def _train_dragoman(plan: ThroughputPlan, batches: list[Batch]) -> float:
    """Returns the seconds of a training with Lightning, set up as in `dragoman train`."""
    steps = len(batches)
    training = TrainingConfig(max_steps=steps, validation_every_steps=steps, precision=plan.precision)
    config = RunConfig(directions=(Direction(source="en", target="de"),), model=plan.model, training=training)
    module = TranslationModule(config, plan.vocabulary_size)
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(RunFolder(Path(folder)), training, HardwareConfig(), [clock])
        loader: DataLoader[Batch] = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]  # a list will do
        trainer.fit(module, loader, DataLoader(batches[:1], batch_size=None))  # type: ignore[arg-type]
    return clock.seconds


def _train_plain(plan: ThroughputPlan, batches: list[Batch]) -> float:
    """Returns the seconds of a plain loop."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = PlainTransformer(plan.model, plan.vocabulary_size).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    started_seconds = 0.0
    for number, batch in enumerate(batches):
        if number == WARMUP_STEPS:
            started_seconds = time.perf_counter()
        source_ids, inputs, labels = (ids.to(device) for ids in batch[:3])
        with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16-mixed"):
            logits = model(source_ids, inputs).flatten(end_dim=1)
            loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=PAD_ID, label_smoothing=0.1)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
    return time.perf_counter() - started_seconds
