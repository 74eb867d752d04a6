"""Writes the graphs of a model in a variant and a precision."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.export.graphs.graph_files import ExportedGraphs
from dragoman.export.graphs.native.models import NativeExport
from dragoman.export.graphs.options import check_options
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.manifest import AttentionHead, GraphVariant, Precision

if TYPE_CHECKING:
    from dragoman.model.network.transformer import Transformer


def export_model(
    model: "Transformer | TransformerWeights",
    variant: GraphVariant,
    precision: Precision,
    alignment_heads: Sequence[AttentionHead],
    folder: Path,
    *,
    shortlists: bool = False,
) -> ExportedGraphs:
    """Writes native graphs of a Transformer for a CPU, else graphs with states; raises UnsupportedGraphError.

    Native graphs may take shortlists; graphs with states need not.
    """
    check_options(model.config, variant, precision, alignment_heads)
    if isinstance(model, TransformerWeights) and variant == "cpu":
        return NativeExport(model, precision, folder).write(alignment_heads, shortlists=shortlists)
    # Native graphs of imported models need no PyTorch.
    from dragoman.export.graphs.to_onnx import export_graphs  # noqa: PLC0415
    from dragoman.export.torch_weights import to_torch, to_weights  # noqa: PLC0415

    if isinstance(model, TransformerWeights):
        model = to_torch(model)
    elif variant == "cpu":
        return export_model(to_weights(model), variant, precision, alignment_heads, folder, shortlists=shortlists)
    return export_graphs(model, precision, alignment_heads, folder)
