"""The models that benchmarks measure: a trained run, and a random model; as files of every system.

All systems of a model hold the same weights. Knows nothing of what is measured. Called by the benchmarks.

What CTranslate2 calls a precision of ours. Knows neither library.

A tokenizer of made-up words, for models that were never trained: of exactly the size that is asked for.

What a benchmark's system asks of a model: files that the system can load. Knows no torch.

`benchmarks.systems.compared_model` implements it, the systems of the benchmarks call it.

The shape of the random model that benchmarks measure unless they are told another. Knows no torch.
"""

from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, Protocol

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when it is imported

from benchmarks.systems.checkpoint import write_checkpoint
from export.make_bundle import BundleOptions, Sample, write_bundle
from export.origin import read_origin
from export.source_model import Exportable
from model.config import Direction, TransformerConfig
from model.data.corpus import Corpus, CorpusError
from model.network.transformer import Transformer
from model.run import RunError
from model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, WORD_START, Tokenizer
from serve.bundle.manifest import EIGHT_BITS, BundleDirection, GraphVariant, Precision


def compute_type(precision: Precision) -> Literal["float32", "int8"]:
    """Returns the type that CTranslate2 has beside a precision; its 8 bits have a scale for every row."""
    return "int8" if precision in EIGHT_BITS else "float32"


# In the order of their ids.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
WORD_LETTERS = 4


def made_up_tokenizer(vocabulary_size: int) -> Tokenizer:
    """Returns a tokenizer whose words are all of one length, with the special tokens where ours have them."""
    model = ModelProto()
    kinds = model.SentencePiece
    for token_id, piece in enumerate(SPECIAL_PIECES):
        model.pieces.add(piece=piece, type=kinds.UNKNOWN if token_id == UNK_ID else kinds.CONTROL)
    for number in range(vocabulary_size - len(SPECIAL_PIECES)):
        model.pieces.add(piece=f"{WORD_START}{made_up_word(number)}", score=-1.0)
    trainer = model.trainer_spec
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    trainer.pad_piece, trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = SPECIAL_PIECES
    return Tokenizer(model.SerializeToString())


def made_up_word(number: int) -> str:
    """Returns the word of a number, with letters for digits."""
    letters = ""
    for _ in range(WORD_LETTERS):
        number, digit = divmod(number, len(ascii_lowercase))
        letters += ascii_lowercase[digit]
    return letters


class ModelFiles(Protocol):
    """A model that writes itself in the form of every system, each into a new folder."""

    def write_bundle(self, folder: Path, variant: GraphVariant, precision: Precision) -> None:
        """Writes a bundle of ours."""

    def write_ctranslate2(self, folder: Path, compute_type: str) -> None:
        """Writes a model of CTranslate2, whose weights are of a type."""

    def write_checkpoint(self, folder: Path) -> None:
        """Writes what `benchmarks.systems.checkpoint` reads."""


# The base model of Vaswani et al. 2017, table 3; its vocabulary is an option of its own.
BASE = TransformerConfig(max_source_tokens=64, max_target_tokens=64)
BASE_VOCABULARY_SIZE = 32_000
# What made-up words of four letters suffice for, and the special tokens beside them.
MOST_TOKENS = 26**4


RANDOM_SEED = 1
RANDOM_DIRECTION = Direction(source="en", target="de")


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A Transformer and what its bundles are made of.

    Attributes:
        name: in tables and messages.
        model: its weights are those of all systems.
        exportable: the model and its tokenizer, as an export takes them.
        samples: texts for golden sentences.
        trained: whether its translations can be expected to mean something.
    """

    name: str
    model: Transformer
    exportable: Exportable
    samples: list[Sample]
    trained: bool

    def describe(self) -> str:
        """Returns its shape in words."""
        config, parameters = self.model.config, sum(each.numel() for each in self.model.parameters())
        return (
            f"{parameters / 1e6:.1f} million parameters: width {config.d_model}, inner width {config.d_ff}, "
            f"{config.heads} heads, {config.encoder_layers} + {config.decoder_layers} layers, "
            f"{self.model.vocabulary_size:,} tokens"
        )

    def source_ids(self, corpus: Corpus) -> list[tuple[int, ...]]:
        """Returns what the model reads of a test set.

        Raises:
            CorpusError: if it does not translate in this direction, or a sentence is too long for it.
        """
        directions = {(each.source, each.target): each for each in self.exportable.directions}
        if corpus.languages not in directions:
            known = ", ".join(map(str, self.exportable.directions))
            raise CorpusError(f"{self.name} translates {known}, expected {corpus.direction} as in the data")
        prefix = directions[corpus.languages].source_prefix
        sources = [self.exportable.source_ids(prefix, text) for text in corpus.sources]
        longest = self.model.config.max_source_tokens
        for number, source in enumerate(sources, start=1):
            if len(source) > longest:
                raise CorpusError(f"sentence {number}: {len(source)} tokens, expected at most {longest}")
        return sources

    def write_bundle(self, folder: Path, variant: GraphVariant, precision: Precision) -> None:
        """Writes a bundle into a new folder.

        Raises:
            RunError: if it cannot be made.
        """
        write_bundle(self.exportable, self.samples, folder, BundleOptions(self.name, variant, precision))

    def write_ctranslate2(self, folder: Path, compute_type: str) -> None:
        """Writes a model of CTranslate2 into a new folder."""
        from benchmarks.systems.ctranslate2_model import spec_of, write_model  # noqa: PLC0415 - only with this peer

        write_model(folder, spec_of(self.model, self.exportable.tokenizer.source_pieces), compute_type)

    def write_checkpoint(self, folder: Path) -> None:
        """Writes a checkpoint for the peers that compute with PyTorch into a new folder."""
        write_checkpoint(folder, self.model)


def compared_models(run: Path | None, config: TransformerConfig, vocabulary_size: int) -> list[ComparedModel]:
    """Returns the model of a run, if there is one, and the random model of a shape.

    Raises:
        RunError, CorpusError, TokenizerError: as `trained_model` does.
    """
    trained = [] if run is None else [trained_model(run)]
    return [*trained, random_model(config, vocabulary_size)]


def trained_model(path: Path) -> ComparedModel:
    """Returns the model of a run, or of a bundle that was made of one.

    Raises:
        RunError: if the folder is neither, or not one of a Transformer.
        CorpusError: if its samples cannot be read.
        TokenizerError: if its tokenizer lacks a token.
    """
    exportable, samples = read_origin(path)
    if not isinstance(exportable.model, Transformer):
        raise RunError(f"{path}: {type(exportable.model).__name__}: expected a Transformer, which CTranslate2 knows")
    return ComparedModel(path.resolve().name, exportable.model, exportable, samples, trained=True)


def random_model(config: TransformerConfig, vocabulary_size: int) -> ComparedModel:
    """Returns a model of a shape as it is before training, always the same one.

    It repeats the token that it starts from, and so surely that every precision does so: its bundles have golden
    sentences like any other.
    """
    torch.manual_seed(RANDOM_SEED)
    model = Transformer(config, vocabulary_size, PAD_ID).eval()
    tokenizer = made_up_tokenizer(vocabulary_size)
    direction = BundleDirection(source=RANDOM_DIRECTION.source, target=RANDOM_DIRECTION.target)
    exportable = Exportable(model, tokenizer, (direction,), (EOS_ID,), UNK_ID, config.model_dump(mode="json"), steps=0)
    samples = [Sample(RANDOM_DIRECTION, made_up_word(0))]
    return ComparedModel("random", model, exportable, samples, trained=False)
