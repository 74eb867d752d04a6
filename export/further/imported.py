"""An imported model as the start of a further training: a run without steps. `Exportable.of_run` is the way back."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dragoman.export.imports.common import ImportedModelError, ImportOptions, UnnamedLanguageError
from dragoman.export.imports.golden import golden_samples
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_folder import SUFFIXES, is_marian_folder
from dragoman.export.source_model import Exportable, find_direction
from dragoman.export.torch_weights import to_torch
from dragoman.model.config import Direction, RunConfig
from dragoman.model.run import TrainedModel
from dragoman.model.samples import Sample
from dragoman.model.tokenizer.frozen_tokenizer import FramedDirection, FrozenTokenizer, FrozenTokens
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import SpecialIds
from dragoman.model.weights import FORBIDDEN

# The kinds of imports that training takes, and what users call them.
TRAINABLE = ("marian", "m2m_100")
PIECES = ("source_pieces", "target_pieces", "unknown_piece", "special_pieces")
KNOWN = "Marian, M2M100, NLLB or a student of Firefox Translations"


def read_public(path: Path, directions: Sequence[Direction], terms: str = "") -> tuple[TrainedModel, list[Sample]]:
    """Returns the model of public files and texts for its golden sentences; `directions` are those of the data.

    `path` is a folder, or the file of weights in it; `terms` are its license. Raises ImportedModelError for other
    models, and CorpusError if a direction is none of the model's.
    """
    folder = path.parent if path.suffix in SUFFIXES and path.is_file() else path
    if (folder / "model.bin").is_file() or folder.is_file() or (folder / "metadata.json").is_file():
        raise ImportedModelError(f"{path}: model of CTranslate2: expected {KNOWN}")
    read = import_marian_files if is_marian_folder(folder) else import_checkpoint
    try:
        exportable = read(folder, ImportOptions())
    except UnnamedLanguageError:
        if len(directions) != 1:
            raise
        exportable = read(folder, ImportOptions(directions[0].source, directions[0].target))
    exportable = replace(exportable, license=terms)
    return to_trained(exportable, directions), [] if exportable.multilingual else golden_samples(exportable)


def to_trained(exportable: Exportable, directions: Sequence[Direction]) -> TrainedModel:
    """Returns an import as a run without steps: of all its directions, or if it is multilingual of the given ones.

    Raises ImportedModelError if it has layers that training does not have, and CorpusError for other directions.
    """
    weights, tokenizer, origin = exportable.weights, exportable.tokenizer, exportable.training["imported_from"]
    if weights.config.needs_standard_graphs or origin not in TRAINABLE or not isinstance(tokenizer, PieceTokenizer):
        raise ImportedModelError(f"{origin}: cannot be trained further, expected {KNOWN}")
    wanted = [find_direction(exportable, (direction.source, direction.target)) for direction in directions]
    listed = exportable.directions or wanted
    multilingual = exportable.multilingual and exportable.multilingual.model_dump(mode="json")
    tokens = FrozenTokens(
        source_model=b64encode(tokenizer.source_model),
        target_model=b64encode(tokenizer.target_model),
        **{name: getattr(tokenizer, name) for name in PIECES},
        special=SpecialIds(weights.pad_id, weights.bos_id, weights.eos_id),
        source_suffix=exportable.source_suffix,
        vocabulary_size=weights.vocabulary_size,
        directions=tuple(FramedDirection(**item.model_dump()) for item in listed),
        imported={"training": exportable.training, "multilingual": multilingual, "license": exportable.license},
    )
    model = to_torch(weights)
    if model.output_bias is not None:
        model.output_bias.clamp_(min=FORBIDDEN)
    run = tuple(Direction(source=item.source, target=item.target) for item in listed)
    config = RunConfig(directions=run, model=weights.config)
    return TrainedModel(config, FrozenTokenizer(tokens.model_dump_json().encode()), model, 0)
