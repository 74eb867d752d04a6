"""The models that `dragoman bench graphs` measures: a trained run, and a random model; as files of every system.

All systems of a model hold the same weights. Knows nothing of what is measured. Called by `loadtest.graph_comparison`.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from export.exportable import Exportable
from export.make_bundle import BundleOptions, Sample, read_samples, write_bundle
from export.manifest import BundleDirection
from loadtest.graph_systems import GraphSystem, OnnxSystem
from loadtest.made_up_tokenizer import made_up_tokenizer, made_up_word
from model.config import Direction, TransformerConfig
from model.run import RunError, RunFolder
from model.tokenizer import EOS_ID, PAD_ID, UNK_ID, Tokenizer
from model.transformer import Transformer

RANDOM_SEED = 1
RANDOM_DIRECTION = Direction(source="en", target="de")


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A Transformer and what its bundles are made of.

    Attributes:
        name: in tables and messages.
        model: its weights are those of all systems.
        tokenizer: its ids are the model's.
        exportable: both, as an export takes them.
        samples: texts for golden sentences.
        trained: whether its translations can be expected to mean something.
    """

    name: str
    model: Transformer
    tokenizer: Tokenizer
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

    def write(self, system: GraphSystem, folder: Path) -> None:
        """Writes the files of a system into a new folder.

        Raises:
            RunError: if a bundle cannot be made.
        """
        if isinstance(system, OnnxSystem):
            options = BundleOptions(self.name, system.variant, system.precision)
            write_bundle(self.exportable, self.samples, folder, options)
            return
        from loadtest.peers.ctranslate2_model import spec_of, write_model  # noqa: PLC0415 - only with this peer

        write_model(folder, spec_of(self.model, self.tokenizer.source_pieces), system.compute_type)


def trained_model(path: Path) -> ComparedModel:
    """Returns the model of a run.

    Raises:
        RunError: if the folder is no run, or not one of a Transformer.
        CorpusError: if its samples cannot be read.
        TokenizerError: if its tokenizer lacks a token.
    """
    run = RunFolder(path)
    trained = run.load()
    if not isinstance(trained.model, Transformer):
        raise RunError(f"{path}: {trained.config.model.architecture}: expected a Transformer, which CTranslate2 knows")
    samples = read_samples(run.samples, trained.config.directions)
    exportable = Exportable.of_run(trained)
    return ComparedModel(path.resolve().name, trained.model, trained.tokenizer, exportable, samples, trained=True)


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
    return ComparedModel("random", model, tokenizer, exportable, samples, trained=False)
