"""The interface of every model: what training, search and export need of a model.

Models work on ids only.

Shapes: B rows, S source length, T target length, D width of the states, V vocabulary.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from dragoman.model.config import TransformerConfig as Config
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID

# The decoder's state between steps, by name; the first axis of every tensor is the row.
DecoderState = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoded source, states float [B, S, D]; `valid`, bool [B, S], is False at padding."""

    states: Tensor
    valid: Tensor


class TranslationModel(nn.Module, ABC):
    """An encoder-decoder with attention; `pad_id` fills up the shorter sources of a batch."""

    def __init__(
        self, config: Config, vocabulary_size: int, pad_id: int, *, bos_id: int = BOS_ID, eos_id: int = EOS_ID
    ) -> None:
        super().__init__()
        self.limits = config
        self.vocabulary_size = vocabulary_size
        self.pad_id = pad_id
        self.bos_id = bos_id
        self.eos_id = eos_id

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the logits [B, T, V] of teacher forcing: row t predicts the token after target_ids[:, t].

        `source_ids`, int64 [B, S], are right-padded and end in EOS; `target_ids`, int64 [B, T], begin with BOS.
        """
        return self.project(self.decode(target_ids, self.encode(source_ids)))

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The matrix of `project`, [V, D]."""

    @abstractmethod
    def encode(self, source_ids: Tensor) -> Memory:
        """Maps source ids [B, S] to the memory that a decoder attends to."""

    @abstractmethod
    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Maps target ids [B, T] to the states [B, T, D] that predict the token after each of them."""

    @abstractmethod
    def project(self, states: Tensor) -> Tensor:
        """Maps states [..., D] to logits [..., V]."""

    @abstractmethod
    def start(self, memory: Memory) -> DecoderState:
        """Returns the decoder's state before the first step, one row per row of the memory."""

    @abstractmethod
    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Reads one token per row, int64 [B], BOS at first, without recomputing earlier positions.

        Returns the logits of the next token, float [B, V], equal to the last row of full recomputation, and the next
        state. `state` comes from `start` or the previous step.
        """

    @abstractmethod
    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the attention of each target position to each source position, float [B, maps, T, S].

        A map belongs to a head of a decoder layer, layer by layer. Its rows sum to 1.
        """
