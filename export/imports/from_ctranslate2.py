"""Imports an encoder-decoder Transformer of CTranslate2, and packages of Argos Translate, which hold one.

Special tokens and what surrounds a source come from the files beside model.bin, parameters from
`export.imports.ctranslate2`. Called by `export.command`.
"""

import math
import re
from pathlib import Path

import torch
from torch import Tensor

from export.imports.argos_package import open_package
from export.imports.common import (
    ImportedModelError,
    ImportOptions,
    SpecialIds,
    build_transformer,
    find_directions,
    find_limits,
    find_piece,
    read_fields,
)
from export.imports.ctranslate2 import TransformerVariables, computed_positions, read_transformer
from export.imports.ctranslate2_file import read_model_file
from export.imports.ctranslate2_files import (
    CONFIG_FILE,
    FIRST_WITH_CONFIG,
    PAD_PIECES,
    Config,
    Vocabularies,
    read_config,
    read_tokenizer,
    read_vocabularies,
)
from export.imports.tensors import grown
from export.source_model import Exportable
from model.network.transformer import Transformer

MODEL_FILE = "model.bin"
# Languages as M2M100, NLLB and mBART write them: __de__, deu_Latn, de_DE.
_FIRST_TOKEN = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")


def import_ctranslate2(path: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a folder, or of an Argos package.

    Raises:
        ImportedModelError: if it is none, or computes what no model of ours does.
    """
    with open_package(path) as package:
        folder = package.model
        file = read_model_file(folder / MODEL_FILE)
        config = read_config(folder, file)
        variables = read_transformer(folder / MODEL_FILE, file, config)
        vocabularies = read_vocabularies(folder)
        _check_languages(vocabularies)
        tokenizer = read_tokenizer(folder, config, vocabularies)
        model = _model(folder, config, vocabularies, variables, options)
        prefix, suffix = _around_sources(config, vocabularies, variables)
        told = read_fields(folder / CONFIG_FILE) if file.version >= FIRST_WITH_CONFIG else {}
        return Exportable(
            model=model,
            tokenizer=tokenizer,
            directions=find_directions(
                vocabularies.source, options, source=package.source, target=package.target, prefix=prefix
            ),
            source_suffix=suffix,
            unk_id=tokenizer.unk_id,
            training={"imported_from": "ctranslate2", "config": told},
            steps=0,
        )


def _check_languages(vocabularies: Vocabularies) -> None:
    """Refuses models of many languages whose translations begin with the one that is asked for.

    Raises:
        ImportedModelError: naming a piece that asks for one.
    """
    asking = [piece for piece in vocabularies.target if _FIRST_TOKEN.fullmatch(piece)]
    if len(asking) > 1:
        raise ImportedModelError(
            f"{vocabularies.target_path}: {asking[0]}: asks for a language as the first token of each translation, as "
            "NLLB, M2M100 and mBART do: expected a model of one language, or with tokens as >>de<< before the source"
        )


def _model(
    folder: Path, config: Config, vocabularies: Vocabularies, variables: TransformerVariables, options: ImportOptions
) -> Transformer:
    for path, pieces, embedding in (
        (vocabularies.source_path, vocabularies.source, variables.source_embedding),
        (vocabularies.target_path, vocabularies.target, variables.target_embedding),
    ):
        if len(pieces) != len(embedding):
            raise ImportedModelError(f"{path}: {len(pieces)} pieces, expected {len(embedding)} as in {MODEL_FILE}")
    lengths = [len(table) for table in variables.positions if table is not None]
    limits = find_limits(options, min(lengths) if lengths else None)
    size, special = _special_ids(folder, config, vocabularies, variables)
    fields = {
        **variables.fields,
        "max_source_tokens": limits.max_source_tokens,
        "max_target_tokens": limits.max_target_tokens,
    }
    parameters = dict(variables.layers)
    for side, table in zip(("source", "target"), variables.positions, strict=True):
        width = variables.source_embedding.shape[1]
        known = computed_positions(limits.positions, width) if table is None else table
        parameters[f"{side}_positions.table"] = known[: limits.positions].clone()
    source, target, output = (
        grown(weight, size) for weight in (variables.source_embedding, variables.target_embedding, variables.output)
    )
    parameters["embedding.weight"] = source
    fields["tie_embeddings"] = torch.equal(source, target) and torch.equal(source, output)
    if not fields["tie_embeddings"]:
        parameters |= {"target_embedding.weight": target, "output.weight": output}
    fields["output_bias"] = variables.output_bias is not None or len(variables.output) < size
    if fields["output_bias"]:
        parameters["output_bias"] = _output_bias(variables, size)
    return build_transformer(fields, size, special, parameters)


def _output_bias(variables: TransformerVariables, size: int) -> Tensor:
    """Returns the bias of the logits, which never lets a token be written that the target vocabulary lacks."""
    known = len(variables.output)
    bias = torch.zeros(known) if variables.output_bias is None else variables.output_bias
    return torch.cat((bias, torch.full((size - known,), -math.inf)))


def _special_ids(
    folder: Path, config: Config, vocabularies: Vocabularies, variables: TransformerVariables
) -> tuple[int, SpecialIds]:
    """Returns the number of tokens and the special ones.

    A model that starts from an embedding of zeros, or whose vocabulary has nothing to fill up with, gets a token more:
    its embedding is zero, and it is never written.
    """
    size = max(len(vocabularies.source), len(vocabularies.target))
    pad = next((vocabularies.source.index(piece) for piece in PAD_PIECES if piece in vocabularies.source), None)
    if config.start is None:
        raise ImportedModelError(f"{folder / CONFIG_FILE}: decoder_start_token: null: expected a token")
    bos = size
    if not variables.starts_from_zero:
        bos = find_piece(vocabularies.target_path, vocabularies.target, config.start)
    eos = find_piece(vocabularies.target_path, vocabularies.target, config.eos)
    added = variables.starts_from_zero or pad is None
    return size + added, SpecialIds(pad=size if pad is None else pad, bos=bos, eos=eos)


def _around_sources(
    config: Config, vocabularies: Vocabularies, variables: TransformerVariables
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the tokens before and after every source."""
    path, pieces = vocabularies.source_path, vocabularies.source
    prefix = (find_piece(path, pieces, config.bos),) if config.add_source_bos else ()
    # Models that start from zeros are Marian's, whose sources end. Those converted from Hugging Face do not say so.
    ends = config.add_source_eos or variables.starts_from_zero
    return prefix, (find_piece(path, pieces, config.eos),) if ends else ()
