"""What training, generation and export need of a model, whatever its architecture.

`model.network.transformer` implements it; `build_model` in `model.network.build` chooses. Knows no tokenizer,
only ids.

Shapes: B rows, S source length, T target length, D width of the states, V vocabulary.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from model.config import ModelConfig
from model.tokenizer.tokenizer import BOS_ID, EOS_ID

# What a decoder remembers between steps, by name; every tensor has the rows first.
DecoderState = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoded source.

    Attributes:
        states: float [B, S, D].
        valid: bool [B, S], True at tokens and False at padding.
    """

    states: Tensor
    valid: Tensor


class TranslationModel(nn.Module, ABC):
    """An encoder-decoder with attention.

    Attributes:
        pad_id: fills up the shorter sources of a batch.
        bos_id: the token that every translation starts from.
        eos_id: the token that ends a translation.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_size: int,
        pad_id: int,
        *,
        bos_id: int = BOS_ID,
        eos_id: int = EOS_ID,
    ) -> None:
        super().__init__()
        self.limits = config
        self.vocabulary_size = vocabulary_size
        self.pad_id = pad_id
        self.bos_id = bos_id
        self.eos_id = eos_id

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Predicts each next target token from the ones before it (teacher forcing).

        Args:
            source_ids: int64 [B, S], right-padded, each row ending in EOS.
            target_ids: int64 [B, T], right-padded, each row beginning with BOS.

        Returns:
            Logits, float [B, T, V]: row t predicts the token after target_ids[:, t].
        """
        return self.project(self.decode(target_ids, self.encode(source_ids)))

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The matrix that `project` multiplies with, [V, D]."""

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
        """Returns the state of a decoder before its first step, one row for each of the memory."""

    @abstractmethod
    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Reads one token per row and predicts the next one, at a cost that does not grow with re-computation.

        Args:
            token_ids: int64 [B], BOS at first.
            state: what `start` or the step before returned.

        Returns:
            Logits, float [B, V], equal to the last row of full re-computation, and the next state.
        """

    @abstractmethod
    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns how much each target position attends to each source position, float [B, maps, T, S].

        A map belongs to a head of a decoder layer, layer by layer; its rows sum to 1 (to at most 1 where a local
        attention is cut off at a window's edge).
        """
