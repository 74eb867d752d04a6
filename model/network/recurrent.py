"""The Transformer's ancestors: a recurrent encoder-decoder with the attention of Bahdanau et al. or of Luong et al.

A bidirectional encoder of gated recurrent units annotates every source token with what stands before and behind it; a
recurrent decoder attends to the annotations. One embedding matrix serves source, target and output. Knows no tokenizer,
only ids; `export.graphs.recurrent` takes the same parameters apart.

Shapes: B rows, S source length, T target length, D width, V vocabulary.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from model.config import RecurrentConfig
from model.network.alignment import Source
from model.network.dropout import Dropout
from model.network.hard_attention import PositionSampler, Reinforce, SampledDecode, most_probable
from model.network.recurrent_decoder import BahdanauDecoder, Choose, LuongDecoder, Step
from model.network.translation_model import DecoderState, Memory, TranslationModel


class Recurrent(TranslationModel):
    """Gated recurrent units with attention (arXiv:1409.0473, arXiv:1508.04025).

    Attributes:
        state_names: of the parts of the recurrent state, in the decoder's order.
        reinforce: of a hard model, the part of the loss that `decode_sampled` is for; None of any other.
    """

    def __init__(self, config: RecurrentConfig, vocabulary_size: int, pad_id: int) -> None:
        super().__init__(config, vocabulary_size, pad_id)
        self.config = config
        self.state_names = recurrent_names(config)
        self.embedding = nn.Embedding(vocabulary_size, config.d_model)
        self.dropout = Dropout(config.dropout)
        # Each direction has half the width: annotations are as wide as the decoder's states, as the dot score needs.
        self.encoder = nn.GRU(
            config.d_model,
            config.d_model // 2,
            config.encoder_layers,
            batch_first=True,
            dropout=config.dropout if config.encoder_layers > 1 else 0.0,
            bidirectional=True,
        )
        decoder = BahdanauDecoder if config.attention == "additive" else LuongDecoder
        self.decoder = decoder(config)
        self.reinforce = Reinforce() if config.hard else None
        self._initialise()

    @property
    def output_weight(self) -> Tensor:
        """The embedding matrix, [V, D]."""
        return self.embedding.weight

    def encode(self, source_ids: Tensor) -> Memory:
        """Annotates source ids [B, S]; padding has no influence and annotations of zeros."""
        valid = source_ids != self.pad_id
        packed = pack_padded_sequence(
            self.embed(source_ids), valid.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=source_ids.shape[1])
        return Memory(states, valid)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Maps target ids [B, T] to the readouts [B, T, D] that predict the token after each of them.

        A hard model looks at its most probable position, which teaches it nothing; see `decode_sampled`.
        """
        embedded = self.embed(target_ids)
        return self._readout(self._unroll(embedded, memory, self.choose), embedded)

    def decode_sampled(self, target_ids: Tensor, memory: Memory) -> SampledDecode:
        """Decodes target ids [B, T] in the training of a hard model, looking at sampled positions."""
        embedded = self.embed(target_ids)
        sampler = PositionSampler.draw(len(target_ids), target_ids.device)
        states = self._readout(self._unroll(embedded, memory, sampler), embedded)
        return SampledDecode(
            states, torch.stack(sampler.log_probabilities, dim=1), torch.stack(sampler.entropies, dim=1)
        )

    def project(self, states: Tensor) -> Tensor:
        """Maps readouts [..., D] to logits [..., V] with the embedding matrix."""
        return functional.linear(states, self.embedding.weight)

    def start(self, memory: Memory) -> DecoderState:
        """Returns the state before the first step: what to attend to, the position, and the recurrent state."""
        lengths = memory.valid.sum(dim=1)
        source = self.decoder.source(memory.states, lengths)
        state = {"annotations": source.annotations, "keys": source.keys, "source_lengths": lengths}
        recurrent = zip(self.state_names, self.decoder.start(memory.states), strict=True)
        return {**state, "positions": torch.zeros_like(lengths), **dict(recurrent)}

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Reads one token per row [B] and predicts the next one, float [B, V]."""
        embedded = self.embed(token_ids)
        source = Source.of(state["annotations"], state["keys"], state["source_lengths"])
        past = [state[name] for name in self.state_names]
        step = self.decoder.step(self.decoder.project(embedded), past, source, state["positions"], self.choose)
        present = dict(zip(self.state_names, step.present, strict=True))
        logits = self.project(self.dropout(self.decoder.readout(step.features, embedded)))
        return logits, {**state, "positions": state["positions"] + 1, **present}

    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the weights of the source positions at every target position, float [B, 1, T, S]."""
        steps = self._unroll(self.embed(target_ids), self.encode(source_ids), self.choose)
        return torch.stack([step.weights for step in steps], dim=1)[:, None]

    def embed(self, ids: Tensor) -> Tensor:
        """Maps ids [...] to embeddings scaled by sqrt(D), [..., D].

        Scaled as in the Transformer: what is small enough for logits is too small for the gates.
        """
        embedded: Tensor = self.dropout(self.embedding(ids) * math.sqrt(self.config.d_model))
        return embedded

    def choose(self, weights: Tensor) -> Tensor:
        """Returns weights [B, S] as they are, or if attention is hard, all on the most probable position."""
        return most_probable(weights) if self.config.hard else weights

    def _unroll(self, embedded: Tensor, memory: Memory, choose: Choose) -> list[Step]:
        """Runs the decoder over embedded targets [B, T, D]. What needs no state is computed before the loop."""
        inputs = self.decoder.project(embedded)
        source = self.decoder.source(memory.states, memory.valid.sum(dim=1))
        past = self.decoder.start(memory.states)
        steps = []
        for position in range(embedded.shape[1]):
            positions = torch.full_like(source.lengths, position)
            steps.append(self.decoder.step(inputs[:, position], past, source, positions, choose))
            past = steps[-1].present
        return steps

    def _readout(self, steps: Sequence[Step], embedded: Tensor) -> Tensor:
        """Returns the readouts of all steps at once, [B, T, D]."""
        features = torch.stack([step.features for step in steps], dim=1)
        states: Tensor = self.dropout(self.decoder.readout(features, embedded))
        return states

    def _initialise(self) -> None:
        """Recurrent matrices start orthogonal (Bahdanau et al. 2015, appendix B.1), a square for each gate."""
        width = self.config.d_model
        for name, parameter in self.named_parameters():
            if "weight_hh" in name or name.endswith("recurrent.weight"):
                for gate in parameter.data.chunk(3):
                    nn.init.orthogonal_(gate)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)


def recurrent_names(config: RecurrentConfig) -> list[str]:
    """Returns the names of the recurrent state's parts: each layer's, then Luong's attentional vector."""
    hidden = [f"hidden_{layer}" for layer in range(config.decoder_layers)]
    return hidden if config.attention == "additive" else [*hidden, "attentional"]
