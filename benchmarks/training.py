"""The speed of training, compared with `torch.nn.Transformer` in an ordinary training loop.

Both models have the shape of a recipe and take the same batches of random tokens, without padding. A step is forward
pass, loss, backward pass, clipping and Adam. Reading data, validation and averaging are not part of it.
"""

import time
import warnings
from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.plan import BenchmarkPlan, Positive
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds
from dragoman.model.config import Direction, RunConfig, TrainingConfig, TransformerConfig, read_recipe, recipe_path
from dragoman.model.data.batches import Batch
from dragoman.model.errors import reason_of
from dragoman.model.network.attention import Positions
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID
from dragoman.model.training.module import TranslationModule, make_optimizer
from dragoman.model.training.trainer import chosen_precision

SEED = 1
PEER = "torch.nn.Transformer"
ROWS = ("ms per step", "tokens/s, both sides")
# Fill the caches of memory and of kernels.
WARM_UP_STEPS = 2

# Takes one optimizer step and returns the loss.
Step = Callable[[Batch], Tensor]


class TrainingPlan(BenchmarkPlan):
    """The model and its batches."""

    libraries = ("torch", "lightning", "numpy")

    recipe: str = Field("multi30k", description="name in model/recipes/ or YAML file with the shape and the training")
    vocabularies: tuple[Positive, ...] = Field((4000, 12_000), min_length=1, description="sizes of the vocabulary")
    sentence_tokens: int = Field(16, gt=1, description="length of every source and target, EOS included")
    steps: int = Field(20, gt=0, description="measured steps of a turn")
    threads: int = Field(1, gt=0, description="threads of PyTorch")

    def measure(self) -> Report:
        """Measures each vocabulary; raises BenchmarkError if the recipe is none of a Transformer."""
        torch.set_num_threads(self.threads)
        config = read_config(self.recipe)
        tables = [self._compare(config, vocabulary) for vocabulary in self.vocabularies]
        return Report(tables, f"threads of PyTorch: {self.threads}")

    def _compare(self, config: RunConfig, vocabulary: int) -> Table:
        batches = draw_batches(config, vocabulary, self.sentence_tokens, WARM_UP_STEPS + self.steps)
        systems = {"dragoman": dragoman_step(config, vocabulary), PEER: peer_step(config, vocabulary)}

        def train(name: str) -> Figures:
            step = systems[name]
            for batch in batches[:WARM_UP_STEPS]:
                step(batch)
            started_seconds = time.perf_counter()
            for batch in batches[WARM_UP_STEPS:]:
                step(batch)
            seconds = time.perf_counter() - started_seconds
            tokens = sum(batch.count_tokens() for batch in batches[WARM_UP_STEPS:])
            return dict(zip(ROWS, (1e3 * seconds / self.steps, tokens / seconds), strict=True))

        columns = measure_rounds(systems, self.rounds, f"training, {vocabulary} tokens", train)
        text = (
            f"Recipe {self.recipe}, {chosen_precision(config.training)}, {config.training.batch_tokens} tokens a step,"
            f" {vocabulary} tokens in the vocabulary; rounds: {self.rounds}."
        )
        return Table("training", columns, base="dragoman", compared=ROWS, divide_by_base=True, text=text)


def read_config(recipe: str) -> RunConfig:
    """Returns the configuration of a recipe; raises BenchmarkError if it does not exist or has another content."""
    try:
        directions = [Direction(source="en", target="de")]
        return RunConfig.model_validate({**read_recipe(recipe_path(recipe)), "directions": directions})
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"recipe: {recipe}: expected a recipe: {reason_of(error)}") from error


def shape_of(config: RunConfig) -> TransformerConfig:
    """Returns the shape of a Transformer; raises BenchmarkError if the model is another one."""
    if not isinstance(config.model, TransformerConfig):
        raise BenchmarkError(f"recipe: expected the architecture transformer, got {config.model.architecture}")
    return config.model


def draw_batches(config: RunConfig, vocabulary: int, tokens: int, count: int) -> list[Batch]:
    """Returns batches of the recipe's size with sentences of one length."""
    generator = torch.Generator().manual_seed(SEED)
    rows = max(1, config.training.batch_tokens // tokens)
    first_id = 1 + max(PAD_ID, BOS_ID, EOS_ID)

    def sentences() -> Tensor:
        ids = torch.randint(first_id, vocabulary, (rows, tokens), generator=generator)
        ids[:, -1] = EOS_ID
        return ids

    batches = []
    for _ in range(count):
        labels = sentences()
        batches.append(Batch(sentences(), torch.cat([torch.full((rows, 1), BOS_ID), labels[:, :-1]], dim=1), labels))
    return batches


def dragoman_step(config: RunConfig, vocabulary: int) -> Step:
    """Returns the step of `dragoman train`, without Lightning's trainer."""
    torch.manual_seed(SEED)
    module = TranslationModule(config, vocabulary).train()
    module.log = lambda *_, **__: None  # type: ignore[method-assign]  # it belongs to the trainer
    return make_step(config.training, module, lambda batch: module.training_step(batch, 0))


def peer_step(config: RunConfig, vocabulary: int) -> Step:
    """Returns the step of `torch.nn.Transformer` with the loss of PyTorch."""
    torch.manual_seed(SEED)
    peer = PeerTransformer(shape_of(config), vocabulary).train()

    def loss_of(batch: Batch) -> Tensor:
        logits = peer(batch.source_ids, batch.target_inputs).flatten(end_dim=1)
        smoothing = config.training.label_smoothing
        labels = batch.target_labels.flatten()
        return functional.cross_entropy(logits, labels, ignore_index=PAD_ID, label_smoothing=smoothing)

    return make_step(config.training, peer, loss_of)


def make_step(config: TrainingConfig, module: nn.Module, loss_of: Callable[[Batch], Tensor]) -> Step:
    """Returns one step of a model with a loss: the optimizer and the precision of `dragoman train`."""
    parameters = list(module.parameters())
    optimizer = make_optimizer(parameters, config)
    mixed = chosen_precision(config) == "bf16-mixed"

    def step(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = loss_of(batch)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, config.gradient_clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


class PeerTransformer(nn.Module):
    """`torch.nn.Transformer` with tied embeddings and sinusoids: the shape of a recipe, and biases."""

    def __init__(self, shape: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, shape.d_model, padding_idx=PAD_ID)
        nn.init.normal_(self.embedding.weight, std=shape.d_model**-0.5)
        self.positions = Positions("sinusoidal", shape.max_source_tokens, shape.d_model)
        with warnings.catch_warnings():
            # It is for inference.
            warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
            self.layers = nn.Transformer(
                shape.d_model,
                shape.heads,
                shape.encoder_layers,
                shape.decoder_layers,
                shape.d_ff,
                shape.dropout,
                batch_first=True,
                norm_first=shape.norm_position == "pre",
            )
        self._scale = shape.d_model**0.5

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the logits [B, T, V] of ids [B, S] and [B, T]."""
        mask = self.layers.generate_square_subsequent_mask(target_ids.shape[1])
        padding = source_ids == PAD_ID
        states = self.layers(
            self._embed(source_ids),
            self._embed(target_ids),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(states, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(ids) * self._scale + self.positions(ids.shape[1])
        return embedded
