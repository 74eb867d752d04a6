"""Imports checkpoints in Hugging Face format; config.json names the kind of the model."""

import json
from collections.abc import Callable
from pathlib import Path

from dragoman.export.imports.checkpoint import CONFIG_FILE, Imported
from dragoman.export.imports.common import ImportedModelError, ImportOptions, importing, read_fields
from dragoman.export.imports.fairseq import import_m2m100, import_mbart
from dragoman.export.imports.marian import import_marian
from dragoman.export.imports.t5 import import_t5
from dragoman.export.source_model import Exportable

# Importers by `model_type`.
IMPORTERS: dict[str, Callable[[Path, ImportOptions], Imported]] = {
    "marian": import_marian,
    "m2m_100": import_m2m100,
    "mbart": import_mbart,
    "t5": import_t5,
    "mt5": import_t5,
}


def import_checkpoint(folder: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a checkpoint; raises ImportedModelError if the folder is none, or it is not supported."""
    path = folder / CONFIG_FILE
    with importing(folder):
        fields = read_fields(path)
        model_type = fields.get("model_type")
        if not isinstance(model_type, str) or model_type not in IMPORTERS:
            known = ", ".join(IMPORTERS)
            raise ImportedModelError(f"{path}: model_type: {json.dumps(model_type)}: expected one of {known}")
        model, tokenizer, languages, suffix = IMPORTERS[model_type](folder, options)
        return Exportable.of_import(model_type, fields, model, tokenizer, languages, source_suffix=suffix)
