"""The models of the benchmarks, a trained one and a random one, in the formats of all systems, and their sentences.

All systems of a model hold the same weights. A trained model translates a test set. A random model gets made-up
sentences with the same source and target lengths.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Literal

import torch
from pydantic import Field
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when it is imported

from benchmarks.harness.plan import Plan
from benchmarks.systems.pytorch_system import write_checkpoint
from benchmarks.systems.translating import SourceSentence, draw_sentences
from export.make_bundle import BundleOptions, Sample, write_bundle
from export.origin import read_origin
from export.source_model import Exportable
from model.config import Direction, TransformerConfig
from model.data.corpus import Corpus, CorpusError, read_corpus
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

    def sentences(self, corpus: Corpus) -> list[SourceSentence]:
        """Returns the sentences of a test set; the model ends their translations.

        Raises:
            CorpusError: as `source_ids`.
        """
        return [SourceSentence(each, 0, self.model.config.max_target_tokens) for each in self.source_ids(corpus)]

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


# Approximates the tokens of a tokenizer.
WORDS = re.compile(r"\w+|[^\w\s]")


class ModelsPlan(Plan):
    """The models and the sentences of a benchmark."""

    run: Path | None = Field(None, description="training run or fp32 bundle of a second, trained model")
    data: str = Field("multi30k:en-de", description="test data as in `dragoman evaluate`")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    sentences: int | None = Field(None, gt=0, description="number of sentences; null: all")

    def corpus(self) -> Corpus:
        """Returns the sentence pairs.

        Raises:
            CorpusError: if the data is unreadable.
        """
        corpus = read_corpus(self.data, "test")
        return corpus.select(range(min(len(corpus), self.sentences or len(corpus))))

    def models(self) -> list[tuple[ComparedModel, list[SourceSentence]]]:
        """Returns the model of the run, if given, and a random model, with their sentences.

        Raises:
            CorpusError: if the data is unreadable, or a model cannot translate it.
            RunError, TokenizerError: as `trained_model`.
        """
        corpus = self.corpus()
        trained = None if self.run is None else trained_model(self.run)
        random = random_model(self.random, self.vocabulary_size)
        random_sentences = made_up_sentences(random, lengths_of(corpus, trained))
        return [*([] if trained is None else [(trained, trained.sentences(corpus))]), (random, random_sentences)]


def made_up_sentences(model: ComparedModel, lengths: Sequence[tuple[int, int]]) -> list[SourceSentence]:
    """Returns made-up sentences with the given source and target lengths.

    Raises:
        CorpusError: if a sentence is too long for the model.
    """
    limits = model.model.config
    for number, (source, target) in enumerate(lengths, start=1):
        for side, tokens, most in (
            ("source", source, limits.max_source_tokens),
            ("target", target, limits.max_target_tokens),
        ):
            if tokens > most:
                problem = f"sentence {number}: {tokens} {side} tokens, expected at most {most}"
                raise CorpusError(f"{problem}: see random.max_{side}_tokens")
    return draw_sentences(RANDOM_SEED, lengths, model.model.vocabulary_size, EOS_ID)


def lengths_of(corpus: Corpus, model: ComparedModel | None) -> list[tuple[int, int]]:
    """Returns the source tokens, EOS included, and the target tokens, EOS excluded, of each pair.

    Without a model, counts words and punctuation.

    Raises:
        CorpusError: if the model cannot translate them.
    """
    if model is None:
        sources = [len(WORDS.findall(source)) + 1 for source in corpus.sources]
        targets = [len(WORDS.findall(target)) for target in corpus.targets]
    else:
        sources = [len(source_ids) for source_ids in model.source_ids(corpus)]
        targets = [len(model.exportable.tokenizer.encode(target)) for target in corpus.targets]
    return [(source, max(1, target)) for source, target in zip(sources, targets, strict=True)]
