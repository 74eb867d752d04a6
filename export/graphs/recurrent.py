"""ONNX graphs of a recurrent model: each forward has the signature of its graph.

The encoder is the standard operator GRU with row lengths; it can be exported, but not run by PyTorch. The decoder is
the model's own step over the longest source in the batch. Dropout is omitted.

Shapes: B rows of a prefill, S source length, R rows of a step, C capacity of the source states in tokens, D model
width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.onnx.ops import symbolic_multi_out

from dragoman.model.config import RecurrentConfig
from dragoman.model.network.alignment import EncodedSource
from dragoman.model.network.recurrent import Recurrent, recurrent_names

# Other scores compare with the annotations directly.
SCORES_WITH_KEYS = ("additive", "concat")
# A step reads the longest source rounded up to a multiple of this. ONNX Runtime multiplies incomplete blocks of matrix
# rows differently, so without rounding a row's scores would depend on the other rows of its batch.
LENGTH_STEP = 16


def recurrent_states(config: RecurrentConfig) -> list[tuple[str, tuple[int | str, ...]]]:
    """Returns name and shape of each state, in the input order of the decoder graph.

    Shapes with an axis "source" are written once, by the encoder; the others change in every step.
    """
    annotations = ["annotations", "keys"] if config.attention in SCORES_WITH_KEYS else ["annotations"]
    width = config.d_model
    return [
        *((name, ("source", width)) for name in annotations),
        *((name, (width,)) for name in recurrent_names(config)),
    ]


class RecurrentEncoderGraph(nn.Module):
    """Maps source tokens to annotations, their keys if the score uses any, and the initial decoder state."""

    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.model = model
        self.layers = nn.ModuleList(
            BidirectionalLayerGraph(model.encoder, layer) for layer in range(model.config.encoder_layers)
        )

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Encodes padded sources, int64 [B, S], with the valid tokens per row, int32 [B].

        Returns the states of `recurrent_states`: float [B, S, D], undefined beyond a row's length, then float [B, D].
        """
        states = self.model.embed(source_ids).transpose(0, 1)
        for layer in self.layers:
            states = layer(states, source_lengths)
        annotations = states.transpose(0, 1)
        decoder = self.model.decoder
        source = decoder.source(annotations, source_lengths)
        keys = [source.keys] if self.model.config.attention in SCORES_WITH_KEYS else []
        return [annotations, *keys, *decoder.start(annotations)]


class BidirectionalLayerGraph(nn.Module):
    """One encoder layer as the ONNX operator GRU, whose gates are z, r, h; those of PyTorch are r, z, h."""

    def __init__(self, encoder: nn.GRU, layer: int) -> None:
        super().__init__()
        self.width = encoder.hidden_size
        self.inputs = _stacked(encoder, f"weight_ih_l{layer}")
        self.recurrent = _stacked(encoder, f"weight_hh_l{layer}")
        biases = (_stacked(encoder, f"bias_ih_l{layer}"), _stacked(encoder, f"bias_hh_l{layer}"))
        self.biases = nn.Parameter(torch.cat(biases, dim=1), requires_grad=False)

    def forward(self, states: Tensor, source_lengths: Tensor) -> Tensor:
        """Maps states [S, B, inputs] to the concatenated states of both directions, [S, B, 2 * width]."""
        length, rows, _ = states.shape
        output, _ = symbolic_multi_out(
            "GRU",
            [states, self.inputs, self.recurrent, self.biases, source_lengths],
            {"hidden_size": self.width, "direction": "bidirectional", "linear_before_reset": 1},
            dtypes=(states.dtype, states.dtype),
            shapes=((length, 2, rows, self.width), (2, rows, self.width)),
        )
        return output.transpose(1, 2).flatten(start_dim=2)


class RecurrentDecoderGraph(nn.Module):
    """One decoder step for R rows, each at its own position."""

    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.model = model
        self.source_states = sum("source" in shape for _, shape in recurrent_states(model.config))

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, states: Sequence[Tensor]
    ) -> list[Tensor]:
        """Predicts the next token of every row.

        Args:
            token_ids: last token of each row, int64 [R].
            positions: number of earlier tokens per row, int32 [R].
            source_lengths: valid source tokens per row, int32 [R].
            states: the states of `recurrent_states`: float [R, C, D] and [R, D].

        Returns:
            Logits, float [R, V], followed by the next value of every recurrent state, float [R, D].
        """
        decoder, choose = self.model.decoder, self.model.choose
        embedded = self.model.embed(token_ids)
        longest = ((source_lengths.max() + (LENGTH_STEP - 1)) // LENGTH_STEP * LENGTH_STEP).item()
        annotations, *keys = (state[:, :longest] for state in states[: self.source_states])
        source = EncodedSource.of(annotations, keys[0] if keys else annotations, source_lengths)
        # Padding has weight 0, but 0 times a leftover NaN or infinity of an earlier row is NaN.
        source = replace(source, annotations=annotations.masked_fill(~source.valid[:, :, None], 0.0))
        step = decoder.step(decoder.project(embedded), states[self.source_states :], source, positions, choose)
        return [self.model.project(decoder.readout(step.features, embedded)), *step.present]


def _stacked(encoder: nn.GRU, name: str) -> nn.Parameter:
    """Stacks a parameter of both directions in ONNX's gate order, [2, 3 * width, ...]."""
    directions = []
    for suffix in ("", "_reverse"):
        reset, update, new = getattr(encoder, name + suffix).detach().chunk(3)
        directions.append(torch.cat((update, reset, new)))
    return nn.Parameter(torch.stack(directions), requires_grad=False)
