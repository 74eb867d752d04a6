"""Imports checkpoints in Hugging Face format; config.json names the kind of the model."""

import json
from collections.abc import Callable
from pathlib import Path

from dragoman.export.imports.checkpoint import CONFIG_FILE
from dragoman.export.imports.common import ImportedModelError, ImportOptions, read_fields
from dragoman.export.imports.m2m100 import import_m2m100
from dragoman.export.imports.marian import import_marian
from dragoman.export.imports.mbart import import_mbart
from dragoman.export.imports.t5 import import_t5
from dragoman.export.source_model import Exportable

# Importers by `model_type`.
IMPORTERS: dict[str, Callable[[Path, ImportOptions], Exportable]] = {
    "marian": import_marian,
    "m2m_100": import_m2m100,
    "mbart": import_mbart,
    "t5": import_t5,
    "mt5": import_t5,
}


def import_checkpoint(folder: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a checkpoint; raises ImportedModelError if the folder is none, or it is not supported."""
    path = folder / CONFIG_FILE
    model_type = read_fields(path).get("model_type")
    if not isinstance(model_type, str) or model_type not in IMPORTERS:
        raise ImportedModelError(
            f"{path}: model_type: {json.dumps(model_type)}: expected one of {', '.join(IMPORTERS)}"
        )
    return IMPORTERS[model_type](folder, options)
