"""The models of the benchmarks, a trained one and a random one, in the formats of all systems, and their sentences.

All systems of a model hold the same weights. A trained model translates a test set. A random model gets made-up
sentences with the same source and target lengths.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when it is imported

from benchmarks.harness.plan import BenchmarkPlan
from benchmarks.systems.engine_system import ENGINES, EngineKind
from benchmarks.systems.marian_system import draw_shortlist, draw_sources, student, write_files
from benchmarks.systems.peer_system import PEERS, SHORTLIST_FILE, Peer, peer_problem
from benchmarks.systems.pytorch_system import write_checkpoint
from benchmarks.systems.translating import SourceSentence, draw_sentences
from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.export.origin import read_origin
from dragoman.export.source_model import Exportable, find_direction
from dragoman.model.config import Direction, TransformerConfig
from dragoman.model.data.corpus import Corpus, read_corpus
from dragoman.model.errors import CorpusError
from dragoman.model.network.transformer import Transformer
from dragoman.model.samples import Sample
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, WORD_START, Tokenizer
from dragoman.serve.bundle.manifest import BundleDirection, GraphVariant, Precision

Maker = EngineKind | Literal["ctranslate2", "pytorch"] | Peer
# A system with `shortlist` runs on a CPU and takes tokens of the model's shortlist; others take the whole vocabulary.
Variant = GraphVariant | Literal["shortlist"]
# What loads the system of a maker in its own process.
LOADERS: dict[Maker, str] = {
    **dict.fromkeys(ENGINES, "benchmarks.systems.engine_system:load_engines"),
    "ctranslate2": "benchmarks.systems.ctranslate2_system:CTranslate2Translator",
    "pytorch": "benchmarks.systems.pytorch_system:PyTorchTranslator",
    **dict.fromkeys(PEERS, "benchmarks.systems.peer_system:PeerTranslator"),
}
# The pieces stand in the order of their ids.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
WORD_LETTERS = 4
# The base model of Vaswani et al. 2017, table 3; the size of its vocabulary is a separate option.
BASE = TransformerConfig(max_source_tokens=64, max_target_tokens=64)
BASE_VOCABULARY_SIZE = 32_000
# Number of made-up words, a bound that ignores the special tokens.
MAX_TOKENS = len(ascii_lowercase) ** WORD_LETTERS
RANDOM_SEED = 1
RANDOM_DIRECTION = Direction(source="en", target="de")
# Bergamot computes groups of tokens.
TOKEN_GROUP = 8
# Sample sentences of the student. Those whose 8-bit translation equals that in fp32 become golden sentences.
STUDENT_SENTENCES, STUDENT_SAMPLES = 1000, 32
# Approximates the tokens of a tokenizer.
WORDS = re.compile(r"\w+|[^\w\s]")


def compute_type(precision: Precision) -> str:
    """Returns the CTranslate2 type for a precision; its int8 has one scale per row."""
    return {"fp32": "float32", "fp16": "float16", "int8": "int8"}[precision]


def made_up_tokenizer(vocabulary_size: int) -> Tokenizer:
    """Returns a tokenizer of made-up words of equal length, with Dragoman's special tokens."""
    model = ModelProto()
    kinds = model.SentencePiece
    for token_id, piece in enumerate(SPECIAL_PIECES):
        model.pieces.add(piece=piece, type=kinds.UNKNOWN if token_id == UNK_ID else kinds.CONTROL)
    for word in islice(made_up_words(), vocabulary_size - len(SPECIAL_PIECES)):
        model.pieces.add(piece=f"{WORD_START}{word}", score=-1.0)
    trainer = model.trainer_spec
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    trainer.pad_piece, trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = SPECIAL_PIECES
    return Tokenizer(model.SerializeToString())


def made_up_words() -> Iterator[str]:
    """Yields all made-up words, of equal length."""
    return map("".join, product(ascii_lowercase, repeat=WORD_LETTERS))


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A Transformer with everything its bundles need; all systems get its weights.

    The samples are for golden sentences. A `trained` model translates meaningfully and ends by itself. Bergamot and
    Marian can hold one that `is_marian`.
    """

    name: str
    model: Transformer
    exportable: Exportable
    samples: list[Sample]
    trained: bool
    is_marian: bool = False

    def problem(self, maker: Maker, variant: Variant, python: Path | None) -> str:
        """Returns why a system cannot run or hold the model; nothing if it can. `python` is a peer's interpreter."""
        if maker in ("bergamot", "marian") and (problem := peer_problem(maker, python)):
            return f"{maker}_python: {problem}"
        if maker == "ctranslate2" and self.model.config.decoder_memory == "ssru":
            return "decoder_memory: expected self_attention, got ssru"
        if maker in PEERS and not self.is_marian:
            return "expected the random model with marian=true: others start from BOS and have other positions"
        if maker == "bergamot" and self.model.vocabulary_size % TOKEN_GROUP:
            return f"vocabulary_size: expected a multiple of {TOKEN_GROUP}, got {self.model.vocabulary_size}"
        return "expected a model with a shortlist" if variant == "shortlist" and not self.exportable.shortlist else ""

    def describe(self) -> str:
        """Returns its size and shape."""
        config, parameters = self.model.config, sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"{parameters / 1e6:.1f} million parameters: width {config.d_model}, inner width {config.d_ff}, "
            f"{config.heads} heads, {config.encoder_layers} + {config.decoder_layers} layers"
            f"{' with recurrent units' if config.decoder_memory == 'ssru' else ''}, "
            f"{self.model.vocabulary_size:,} tokens"
        )

    def sentences(self, corpus: Corpus) -> list[SourceSentence]:
        """Returns the sentences of a test set; the model ends their translations."""
        prefix = find_direction(self.exportable, corpus.languages).source_prefix
        sources = [self.exportable.source_ids(prefix, text) for text in corpus.sources]
        return self.checked([SourceSentence(source, 0, self.model.config.max_target_tokens) for source in sources])

    def checked(self, sentences: list[SourceSentence]) -> list[SourceSentence]:
        """Returns sentences that the model can read and write; raises CorpusError if one is too long."""
        limits = self.model.config
        for number, (source_ids, _, target_tokens) in enumerate(sentences, start=1):
            for tokens, field in ((len(source_ids), "max_source_tokens"), (target_tokens, "max_target_tokens")):
                if tokens > getattr(limits, field):
                    problem = f"sentence {number}: {tokens} tokens: expected at most {getattr(limits, field)}"
                    raise CorpusError(f"{problem}, the model's {field}")
        return sentences

    def write(self, folder: Path, maker: Maker, precision: Precision, variant: Variant = "cpu") -> None:
        """Writes the files that a system loads into a new folder."""
        shortlist = self.exportable.shortlist if variant == "shortlist" else None
        if maker in ENGINES:
            options = BundleOptions(self.name, "cpu" if variant == "shortlist" else variant, precision)
            write_bundle(replace(self.exportable, shortlist=shortlist), self.samples, folder, options)
        elif maker in ("bergamot", "marian"):
            write_files(folder, self.model, made_up_tokenizer(self.model.vocabulary_size).model, maker, precision)
            if shortlist is not None:
                shortlist.write(folder / SHORTLIST_FILE)
        elif maker == "ctranslate2":
            from benchmarks.systems.ctranslate2_system import spec_of, write_model  # noqa: PLC0415 - needs ctranslate2

            write_model(folder, spec_of(self.model, self.exportable.tokenizer.source_pieces), compute_type(precision))
        else:
            write_checkpoint(folder, self.model)


def trained_model(path: Path) -> ComparedModel:
    """Returns the model of a run, or of a bundle made from one.

    Raises RunError if the folder is neither, CorpusError if its samples are unreadable, and
    TokenizerError if its tokenizer lacks a token.
    """
    exportable, samples = read_origin(path)
    return ComparedModel(path.resolve().name, exportable.network, exportable, samples, trained=True)


def random_model(config: TransformerConfig, vocabulary_size: int, *, marian: bool = False) -> ComparedModel:
    """Returns an untrained model with fixed random weights; that of Marian's kind has a shortlist.

    The usual one repeats the token it starts from with such certainty that every precision does the same. Its bundles
    therefore have golden sentences like any other.
    """
    torch.manual_seed(RANDOM_SEED)
    model = student(config, vocabulary_size) if marian else Transformer(config, vocabulary_size, PAD_ID).eval()
    shortlist = draw_shortlist(vocabulary_size) if marian else None
    tokenizer = made_up_tokenizer(vocabulary_size)
    direction = BundleDirection(source=RANDOM_DIRECTION.source, target=RANDOM_DIRECTION.target)
    settings = model.config.model_dump(mode="json")
    exportable = Exportable(model, tokenizer, (direction,), (EOS_ID,), UNK_ID, settings, steps=0, shortlist=shortlist)
    name, texts = "random", [next(made_up_words())]
    if marian:
        sources = [source.source_ids[:-1] for source in draw_sources(STUDENT_SAMPLES, vocabulary_size)]
        name, texts = "student", [tokenizer.decode(source) for source in sources]
    samples = [Sample(RANDOM_DIRECTION, text) for text in texts]
    return ComparedModel(name, model, exportable, samples, trained=False, is_marian=marian)


class ModelsPlan(BenchmarkPlan):
    """The models and the sentences of a benchmark."""

    run: Path | None = Field(None, description="training run or bundle of a second, trained model")
    data: str = Field("multi30k:en-de", description="test data as in `dragoman evaluate`")
    random: TransformerConfig | None = Field(BASE, description="shape of the random model; null: only that of the run")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MAX_TOKENS, description="tokens of the random model")
    sentences: int | None = Field(None, gt=0, description="number of sentences; null: all")
    marian: bool = Field(False, description="only a random model of Marian's kind, as bergamot and marian need it")

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        if self.marian and self.run is not None:
            raise ValueError(f"run: {self.run}: expected null with marian=true, which has one random model only")
        if self.random is None and self.run is None:
            raise ValueError("random: expected a shape without a run, got null")
        return self

    def corpus(self) -> Corpus:
        """Returns the sentence pairs."""
        corpus = read_corpus(self.data, "test")
        return corpus.select(range(min(len(corpus), self.sentences or len(corpus))))

    def models(self) -> list[tuple[ComparedModel, list[SourceSentence]]]:
        """Returns the model of the run and a random model, those that are given, with their sentences."""
        if self.marian and self.random:
            made = random_model(self.random, self.vocabulary_size, marian=True)
            return [(made, draw_sources(self.sentences or STUDENT_SENTENCES, self.vocabulary_size))]
        corpus = self.corpus()
        trained = None if self.run is None else trained_model(self.run)
        found = [] if trained is None else [(trained, trained.sentences(corpus))]
        if self.random is None:
            return found
        random = random_model(self.random, self.vocabulary_size)
        made_up = draw_sentences(RANDOM_SEED, lengths_of(corpus, trained), self.vocabulary_size, EOS_ID)
        return [*found, (random, random.checked(made_up))]


def lengths_of(corpus: Corpus, model: ComparedModel | None) -> list[tuple[int, int]]:
    """Returns the source tokens, EOS included, and the target tokens, EOS excluded, of each pair.

    Without a model, counts words and punctuation.
    """
    if model is None:
        sources = [len(WORDS.findall(source)) + 1 for source in corpus.sources]
        targets = [len(WORDS.findall(target)) for target in corpus.targets]
    else:
        sources = [len(sentence.source_ids) for sentence in model.sentences(corpus)]
        targets = [len(model.exportable.tokenizer.encode(target)) for target in corpus.targets]
    return [(source, max(1, target)) for source, target in zip(sources, targets, strict=True)]
