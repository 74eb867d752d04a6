"""The models of the benchmarks, a trained one and a random one, written in the formats of all systems.

All systems of a model hold the same weights. Optimum exports them in a separate environment, because its latest version
requires `transformers` before 4.58. `make optimum` creates it and installs Dragoman there with the extra `optimum`.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Literal

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when it is imported

from benchmarks.harness.process import SystemFailedError
from benchmarks.systems.pytorch_system import write_checkpoint
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
    """Returns the CTranslate2 type for a precision; its int8 has one scale per row."""
    return "int8" if precision in EIGHT_BITS else "float32"


# In the order of their ids.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
WORD_LETTERS = 4


def made_up_tokenizer(vocabulary_size: int) -> Tokenizer:
    """Returns a tokenizer of made-up words of equal length, with Dragoman's special tokens."""
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
    """Returns the word of a number; letters are its digits."""
    letters = ""
    for _ in range(WORD_LETTERS):
        number, digit = divmod(number, len(ascii_lowercase))
        letters += ascii_lowercase[digit]
    return letters


# The base model of Vaswani et al. 2017, table 3; the size of its vocabulary is a separate option.
BASE = TransformerConfig(max_source_tokens=64, max_target_tokens=64)
BASE_VOCABULARY_SIZE = 32_000
# Number of made-up words of four letters, a bound that ignores the special tokens.
MOST_TOKENS = 26**4


RANDOM_SEED = 1
RANDOM_DIRECTION = Direction(source="en", target="de")


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A Transformer with everything its bundles need; all systems get its weights.

    Attributes:
        samples: texts of golden sentences.
        trained: whether it translates meaningfully and ends by itself.
    """

    name: str
    model: Transformer
    exportable: Exportable
    samples: list[Sample]
    trained: bool

    def describe(self) -> str:
        """Returns its size and shape."""
        config, parameters = self.model.config, sum(each.numel() for each in self.model.parameters())
        return (
            f"{parameters / 1e6:.1f} million parameters: width {config.d_model}, inner width {config.d_ff}, "
            f"{config.heads} heads, {config.encoder_layers} + {config.decoder_layers} layers, "
            f"{self.model.vocabulary_size:,} tokens"
        )

    def source_ids(self, corpus: Corpus) -> list[tuple[int, ...]]:
        """Returns the source tokens of a test set.

        Raises:
            CorpusError: if the model does not translate this direction, or a sentence is too long.
        """
        directions = {(each.source, each.target): each for each in self.exportable.directions}
        if corpus.languages not in directions:
            known = ", ".join(map(str, self.exportable.directions))
            raise CorpusError(f"data: {corpus.direction}: expected a direction of {self.name}: {known}")
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
        """Writes a CTranslate2 model into a new folder."""
        from benchmarks.systems.ctranslate2_system import spec_of, write_model  # noqa: PLC0415 - needs ctranslate2

        write_model(folder, spec_of(self.model, self.exportable.tokenizer.source_pieces), compute_type)

    def write_checkpoint(self, folder: Path) -> None:
        """Writes a checkpoint for the baselines in PyTorch into a new folder."""
        write_checkpoint(folder, self.model)


def compared_models(run: Path | None, config: TransformerConfig, vocabulary_size: int) -> list[ComparedModel]:
    """Returns the model of a run, if given, and a random model.

    Raises:
        RunError, CorpusError, TokenizerError: as `trained_model`.
    """
    trained = [] if run is None else [trained_model(run)]
    return [*trained, random_model(config, vocabulary_size)]


def trained_model(path: Path) -> ComparedModel:
    """Returns the model of a run, or of a bundle made from one.

    Raises:
        RunError: if the folder is neither, or not of a Transformer.
        CorpusError: if its samples are unreadable.
        TokenizerError: if its tokenizer lacks a token.
    """
    exportable, samples = read_origin(path)
    if not isinstance(exportable.model, Transformer):
        raise RunError(f"{path}: {type(exportable.model).__name__}: expected a Transformer, as CTranslate2 supports")
    return ComparedModel(path.resolve().name, exportable.model, exportable, samples, trained=True)


def random_model(config: TransformerConfig, vocabulary_size: int) -> ComparedModel:
    """Returns an untrained model with fixed random weights.

    It repeats the token it starts from with such certainty that every precision does the same. Its bundles therefore
    have golden sentences like any other.
    """
    torch.manual_seed(RANDOM_SEED)
    model = Transformer(config, vocabulary_size, PAD_ID).eval()
    tokenizer = made_up_tokenizer(vocabulary_size)
    direction = BundleDirection(source=RANDOM_DIRECTION.source, target=RANDOM_DIRECTION.target)
    exportable = Exportable(model, tokenizer, (direction,), (EOS_ID,), UNK_ID, config.model_dump(mode="json"), steps=0)
    samples = [Sample(RANDOM_DIRECTION, made_up_word(0))]
    return ComparedModel("random", model, exportable, samples, trained=False)


OPTIMUM_LIBRARIES = ("optimum-onnx", "transformers", "onnxruntime")
OPTIMUM_EXPECTED = "expected the interpreter of an environment with the extra `optimum`, as `make optimum` makes one"
# Fails if one of them is not installed.
PRINT_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True)
class OptimumEnvironment:
    """An environment with Optimum, given by its interpreter."""

    python: Path

    def versions(self) -> dict[str, str]:
        """Returns the versions of its libraries.

        Raises:
            SystemFailedError: if the environment does not exist, or lacks a library.
        """
        versions: dict[str, str] = json.loads(self._run("-c", PRINT_VERSIONS, *OPTIMUM_LIBRARIES))
        return versions

    def write_model(self, model: ComparedModel, folder: Path) -> None:
        """Exports a model with Optimum into a new folder.

        Raises:
            SystemFailedError: if the exporter fails.
        """
        model.write_checkpoint(folder)
        self._run("-m", "benchmarks.systems.optimum_system", str(folder))

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command line
                [self.python, *arguments], check=True, capture_output=True, encoding="utf-8", errors="replace"
            )
        except OSError as error:
            raise SystemFailedError(f"optimum: {self.python}: {error.strerror}; {OPTIMUM_EXPECTED}") from error
        except subprocess.CalledProcessError as error:
            last_line = error.stderr.strip().rpartition("\n")[2]
            raise SystemFailedError(f"optimum: {self.python}: {last_line}; {OPTIMUM_EXPECTED}") from error
        return done.stdout
