"""`dragoman train`: parallel text in, a run folder out. A run that was interrupted goes on where it stopped."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from model.batches import TokenizedPairs
from model.config import (
    Direction,
    ModelConfig,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
    read_yaml,
    recipe_path,
)
from model.corpus import Corpus, CorpusError, read_corpus
from model.run import RunFolder, write_whole
from model.tokenizer import Tokenizer, train_tokenizer
from model.training import TrainingProgress, TranslationData, TranslationModule, WholeCheckpoints

# So many validation sources are kept in the run, spread evenly over the set.
SAMPLES = 32
# Of a corpus without a validation part of its own, this many pairs at its end are held out.
HELD_OUT_PAIRS = 1000


class RecipeSource(PydanticBaseSettingsSource):
    """The recipe as the settings source with the lowest rank: flags and the environment override it."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Is never asked: the recipe is read whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Reads the recipe that a higher source named."""
        recipe = self.current_state.get("recipe")
        if recipe is None:
            return {}
        path = recipe_path(recipe)
        if not path.is_file():
            raise SystemExit(f"dragoman train: recipe: {recipe}: neither a recipe of Dragoman's nor a YAML file")
        try:
            content = read_yaml(path)
        except ValueError as error:
            raise SystemExit(f"dragoman train: recipe: {path}: {error}") from error
        if not isinstance(content, dict):
            raise SystemExit(f"dragoman train: recipe: {path}: expected the sections model, tokenizer and training")
        return content


class TrainCommand(BaseSettings):
    """Trains a Transformer on parallel text.

    Reads sentence pairs, trains a SentencePiece tokenizer and the model, and writes both with checkpoints and
    TensorBoard logs into a folder. Run the same command again to go on after an interruption.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_TRAIN_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    data: str = Field(description="training pairs: multi30k:en-de, files:train.en,train.de or tsv:pairs.en-de.tsv")
    out: Path = Field(description="folder of the run; one that exists is resumed")
    validation: str | None = Field(
        None, description="validation pairs, like --data; default: the data set's own, else the last 1000 pairs"
    )
    multi30k_folder: Path | None = Field(
        None, description="where the Multi30k files are, or are kept once fetched; default: $DRAGOMAN_MULTI30K"
    )
    recipe: str | None = Field(None, description="a name in model/recipes/ or a YAML file with the sections below")
    model: ModelConfig = Field(TransformerConfig(), description="shape of the Transformer")
    tokenizer: TokenizerConfig = Field(TokenizerConfig(), description="the tokenizer")
    training: TrainingConfig = Field(TrainingConfig(), description="how the parameters are found")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ranks the sources: flags, environment, recipe."""
        return (sources["init_settings"], sources["env_settings"], RecipeSource(settings_cls))

    def cli_cmd(self) -> None:
        """Trains; prints where the run is."""
        try:
            training, validation = self._read_data()
        except CorpusError as error:
            raise SystemExit(f"dragoman train: data: {error}") from error
        config = RunConfig(
            directions=(Direction(source=training.source_language, target=training.target_language),),
            model=self.model,
            tokenizer=self.tokenizer,
            training=self.training,
        )
        train(RunFolder(self.out), config, training, validation)

    def _read_data(self) -> tuple[Corpus, Corpus]:
        training = read_corpus(self.data, "train", self.multi30k_folder)
        if self.validation is None and not self.data.startswith("multi30k:"):
            return _hold_out(training)
        validation = read_corpus(self.validation or self.data, "validation", self.multi30k_folder)
        languages, expected = validation.languages, training.languages
        if languages != expected:
            raise CorpusError(f"{self.validation}: languages are {languages}, expected {expected} as in training")
        return training, validation


def train(folder: RunFolder, config: RunConfig, training: Corpus, validation: Corpus) -> None:
    """Trains until the last step, from the last checkpoint if there is one."""
    folder.path.mkdir(parents=True, exist_ok=True)
    _keep_config(folder, config)
    if folder.done.exists():
        print(f"{folder.path}: already trained")
        return
    tokenizer = _make_tokenizer(folder, config.tokenizer, training)
    stride = max(1, len(validation) // SAMPLES)
    samples = validation.sources[::stride][:SAMPLES]
    write_whole(folder.samples, "".join(f"{sample}\n" for sample in samples).encode())
    lightning.seed_everything(config.training.seed, verbose=False)
    data = TranslationData(
        tokenize_pairs(tokenizer, training, config.model, "training"),
        tokenize_pairs(tokenizer, validation, config.model, "validation"),
        config.training.batch_tokens,
        config.training.seed,
    )
    trainer = _make_trainer(folder, config.training)
    module = TranslationModule(config, tokenizer.vocabulary_size)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    print(f"{parameters:,} parameters, {tokenizer.vocabulary_size:,} tokens, {len(training):,} training pairs")
    last = folder.last_checkpoint
    try:
        trainer.fit(module, data, ckpt_path=last if last.exists() else None, weights_only=True)
    except SystemExit as end:  # Lightning's answer to Ctrl-C
        raise SystemExit(f"dragoman train: interrupted; run the same command again to go on from {last}") from end
    folder.done.touch()
    print(f"{folder.path}: trained for {trainer.global_step} steps")


def tokenize_pairs(tokenizer: Tokenizer, corpus: Corpus, config: ModelConfig, name: str) -> TokenizedPairs:
    """Returns the pairs of a corpus as ids; says how many were too long for the model and left out.

    Raises:
        SystemExit: if no pair is left.
    """
    sources = tokenizer.encode_lines(corpus.sources)
    targets = tokenizer.encode_lines(corpus.targets)
    fitting = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if len(source) < config.max_source_tokens and len(target) <= config.max_target_tokens
    ]
    if not fitting:
        raise SystemExit(f"dragoman train: none of {len(sources)} {name} pairs is short enough for the model")
    if len(fitting) < len(sources):
        print(f"{len(sources) - len(fitting)} of {len(sources)} {name} pairs are too long for the model: left out")
    return TokenizedPairs([source for source, _ in fitting], [target for _, target in fitting])


def _keep_config(folder: RunFolder, config: RunConfig) -> None:
    """Writes the configuration of a new run, or checks that a resumed one has the same."""
    if not folder.config.exists():
        write_whole(folder.config, config.to_yaml().encode())
        return
    try:
        earlier = RunConfig.load(folder.config)
    except ValueError as error:
        raise SystemExit(f"dragoman train: out: {folder.config}: not the configuration of a run: {error}") from error
    if earlier != config:
        raise SystemExit(
            f"dragoman train: out: {folder.path} holds a run with another configuration, expected a new folder"
        )


def _make_tokenizer(folder: RunFolder, config: TokenizerConfig, corpus: Corpus) -> Tokenizer:
    if not folder.tokenizer.exists():
        print("training the tokenizer")
        half = config.training_lines // 2
        lines = corpus.sources[:half] + corpus.targets[:half]
        write_whole(folder.tokenizer, train_tokenizer(lines, config.vocabulary_size).model)
    return Tokenizer.load(folder.tokenizer)


def _hold_out(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Splits a corpus into training and validation pairs."""
    cut = len(corpus) - min(HELD_OUT_PAIRS, len(corpus) // 10)
    return (
        Corpus(*corpus.languages, corpus.sources[:cut], corpus.targets[:cut]),
        Corpus(*corpus.languages, corpus.sources[cut:], corpus.targets[cut:]),
    )


def _make_trainer(folder: RunFolder, config: TrainingConfig) -> lightning.Trainer:
    checkpoints = folder.last_checkpoint.parent
    every = config.validation_every_steps
    callbacks: Sequence[Callback] = (
        ModelCheckpoint(checkpoints, filename="best", monitor="validation_loss", enable_version_counter=False),
        # After a validation and behind the best one, so that it knows what the best one is.
        ModelCheckpoint(checkpoints, filename="last", save_on_train_epoch_end=False, enable_version_counter=False),
        TrainingProgress(refresh_rate=10),
    )
    # Batches come from memory, so that workers would only copy them; a folder with checkpoints is how a run resumes.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*exists and is not empty.*")
    # Lightning asks PyTorch in a way that is going out of use.
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return lightning.Trainer(
        accelerator="auto",
        precision="32-true" if config.precision == "auto" else config.precision,
        max_steps=config.max_steps,
        max_epochs=-1,
        val_check_interval=every,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        gradient_clip_val=config.gradient_clip,
        logger=TensorBoardLogger(folder.path, name="logs", version=""),
        callbacks=list(callbacks),
        plugins=[WholeCheckpoints()],
        enable_model_summary=False,
        log_every_n_steps=50,
    )
