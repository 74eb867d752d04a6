"""Writes the graphs of a model in a variant and a precision."""

from collections.abc import Sequence
from pathlib import Path

from export.graphs.graph_files import ExportedGraphs
from export.graphs.graphs import check_options, graphs_of
from export.graphs.native.models import write_native
from export.graphs.to_onnx import export_graphs
from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel
from serve.bundle.manifest import AttentionHead, GraphVariant, Precision


def export_model(
    model: TranslationModel,
    variant: GraphVariant,
    precision: Precision,
    alignment_heads: Sequence[AttentionHead],
    folder: Path,
) -> ExportedGraphs:
    """Writes graphs and weights into a folder: native graphs of a Transformer for a CPU, else graphs with states.

    Raises:
        UnsupportedGraphError: if the architecture has no such graphs or heads.
    """
    if isinstance(model, Transformer) and variant == "cpu":
        check_options(model, variant, precision, alignment_heads)
        return write_native(model, precision, alignment_heads, folder)
    return export_graphs(graphs_of(model, variant, precision, alignment_heads), folder)
