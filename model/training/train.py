"""`dragoman train`: trains a model on parallel text and writes a run folder; resumes an interrupted run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from dragoman.model.config import (
    CleaningConfig,
    Direction,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
    read_recipe,
    recipe_path,
)
from dragoman.model.data.cleaning import TrainingData, read_training_data
from dragoman.model.data.corpus import Corpus, Specifications, balanced_lines, read_corpora
from dragoman.model.data.report import describe_corpora
from dragoman.model.data.segmentation import Segmentation
from dragoman.model.errors import INTERRUPTED, TERMINATED, CorpusError, RunError, UsageError, ended
from dragoman.model.run import RunFolder, TrainedModel, write_whole
from dragoman.model.samples import Sample, choose_samples, format_samples, read_samples
from dragoman.model.tokenizer.frozen_tokenizer import FrozenTokenizer, RunTokenizer
from dragoman.model.tokenizer.tokenizer import TokenizerError, tagged_languages, train_tokenizer
from dragoman.model.training.before import BEFORE, translate_before
from dragoman.model.training.curves import plot_curves
from dragoman.model.training.initial import continued, freeze, initial_parameters
from dragoman.model.training.inputs import Inputs
from dragoman.model.training.module import DivergedError, TranslationData, TranslationModule
from dragoman.model.training.trainer import HardwareConfig, ValidationTranslation, check_hardware, make_trainer
from dragoman.tables import described

# The sections of a recipe and of the options.
SECTIONS = ("model", "cleaning", "tokenizer", "training")


class RecipeSource(PydanticBaseSettingsSource):
    """Settings source with the lowest priority: flags and environment variables override the recipe."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Returns no value: `__call__` reads the whole recipe."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Reads the recipe named by a source of higher priority."""
        recipe = self.current_state.get("recipe", "further" if self.current_state.get("initial") else None)
        if recipe is None:
            return {}
        path = recipe_path(recipe)
        if not path.is_file():
            raise UsageError(f"recipe: expected the name of a recipe or a YAML file, got {recipe}")
        try:
            return read_recipe(path)
        except ValueError as error:
            raise UsageError(f"recipe: {path}: {error}") from error


@described(__file__)
class TrainCommand(BaseSettings):
    """Trains a Transformer on parallel text.

    Reads sentence pairs, trains a SentencePiece tokenizer and the model, and writes both with checkpoints and
    TensorBoard logs into a folder. With --initial, trains a model further. Run the same command again to continue after
    an interruption.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_TRAIN_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    data: Specifications = Field(min_length=1)
    out: Path
    validation: Specifications = ()
    multi30k_folder: Path | None = None
    base_validation: Specifications = ()
    initial: Path | None = None
    recipe: str | None = None
    model: TransformerConfig = TransformerConfig()
    cleaning: CleaningConfig = CleaningConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()
    hardware: HardwareConfig = HardwareConfig()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Orders the sources by priority: flags, environment, recipe."""
        return (sources["init_settings"], sources["env_settings"], RecipeSource(settings_cls))

    def cli_cmd(self) -> None:
        """Trains a model."""
        try:
            data = read_training_data(self.data, self.validation, self.multi30k_folder, self.cleaning)
        except CorpusError as error:
            raise SystemExit(f"dragoman train: data: {error}") from error
        config = self.configuration(tuple(part.corpus.direction for part in data.training))
        initial, samples, base = None, list[Sample](), list[Corpus]()
        if self.initial is not None:
            try:
                base = read_corpora(self.base_validation, "validation", self.multi30k_folder)
            except CorpusError as error:
                raise SystemExit(f"dragoman train: base-validation: {error}") from error
            try:
                initial, samples = self.read_initial(self.initial, config.directions)
                config = continued(initial, config, [part.direction for part in base])
            except ValueError as error:
                raise SystemExit(f"dragoman train: {error}") from error
        elif self.base_validation:
            raise UsageError("base-validation: expected none without --initial")
        folder = RunFolder(self.out)
        try:
            train(folder, config, data, self.hardware, initial, samples=samples, base=base)
        except OSError as error:  # a full disk, for example
            problem = f"{error.filename or folder.path}: {error.strerror or error}"
            advice = f"then run the same command again: it resumes from {folder.last_checkpoint}, if that exists"
            raise SystemExit(f"dragoman train: {problem}; correct this, {advice}") from error

    def configuration(self, directions: tuple[Direction, ...]) -> RunConfig:
        """Returns the configuration of a new run in these directions."""
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS}
        return RunConfig(directions=directions, **sections)

    def read_initial(self, path: Path, _directions: Sequence[Direction]) -> tuple[TrainedModel, list[Sample]]:
        """Returns the initial model, in the directions of the data, and its samples; raises UserError if they fail."""
        run = RunFolder(path)
        initial = run.load()
        return initial, read_samples(run.samples, initial.config.directions)


def train(
    folder: RunFolder,
    config: RunConfig,
    data: TrainingData,
    hardware: HardwareConfig | None = None,
    initial: TrainedModel | None = None,
    *,
    samples: Sequence[Sample] = (),
    base: Sequence[Corpus] = (),
) -> None:
    """Trains until the last step, from the last checkpoint if there is one; raises SystemExit if it ends early.

    `initial` has the first parameters of a new run (None: random ones), and `samples` of its directions that the data
    lacks. `base` has pairs of the domain of the initial model.
    """
    hardware = hardware or HardwareConfig()
    _check(config, data, hardware, is_new=initial is None)
    _keep_config(folder, config, Inputs.of(data, initial, base))
    if folder.done.exists():
        print(f"{folder.path}: already trained")
        return
    training = [part.corpus for part in data.training]
    if initial is not None and config.training.max_steps and not folder.before.exists():
        domains = {"held-out text of the new domain": data.validation, "text of the initial model's domain": base}
        write_whole(folder.before, BEFORE.dump_json(list(translate_before(initial, domains))))
    tokenizer = _make_tokenizer(folder, config, training, initial)
    segmentation = Segmentation(tokenizer, config, training)
    watched = Segmentation(tokenizer, config, data.validation)
    print(describe_corpora(data.training, segmentation.encoded, tokenizer.vocabulary_size))
    _report_too_long(segmentation, "training")
    _report_too_long(watched, "validation")
    chosen = choose_samples(config.directions, [*data.validation, *training], samples)
    write_whole(folder.samples, format_samples(chosen).encode())
    lightning.seed_everything(config.training.seed, verbose=False)
    batches = TranslationData(segmentation.of_epoch, watched.most_probable, config.training)
    callbacks = [] if config.training.selection == "loss" else [ValidationTranslation(watched)]
    trainer = make_trainer(folder, config.training, hardware, callbacks)
    module = TranslationModule(config, tokenizer.vocabulary_size, tokenizer.special)
    if initial is not None:
        module.model.load_state_dict(initial_parameters(initial, tokenizer), assign=True)
    freeze(module.model, config, tokenizer)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    print(f"{parameters:,} parameters, {tokenizer.vocabulary_size:,} tokens")
    _fit(trainer, module, batches, folder)
    if trainer.is_global_zero:
        if trainer.global_step:
            plot_curves(folder.logs, folder.curves)
        folder.done.touch()
        print(f"{folder.path}: trained for {trainer.global_step} steps; curves: {folder.curves}")


def _check(config: RunConfig, data: TrainingData, hardware: HardwareConfig, *, is_new: bool) -> None:
    """Raises SystemExit if this data or this machine cannot train the configuration."""
    if is_new and not config.training.max_steps:
        raise UsageError("training.max-steps: expected more than 0 without --initial, got 0")
    if is_new and config.training.frozen_embeddings:
        raise UsageError("training.frozen-embeddings: expected False without --initial, got True")
    if is_new and config.model.output_bias:
        raise UsageError("model.output-bias: expected False for training, got True")
    if config.training.guided_alignment and not any(part.corpus.links for part in data.training):
        raise SystemExit(
            "dragoman train: training.guided-alignment: expected 0, or data with links: files:a.en,a.de,LINKS"
        )
    check_hardware(hardware)


def _fit(trainer: lightning.Trainer, module: TranslationModule, batches: TranslationData, folder: RunFolder) -> None:
    """Trains from the last checkpoint if it exists; raises SystemExit if training ends early."""
    last = folder.last_checkpoint
    try:
        trainer.fit(module, batches, ckpt_path=last if last.exists() else None, weights_only=True)
        if not trainer.max_steps:
            trainer.save_checkpoint(folder.best_checkpoint, weights_only=True)
    except DivergedError as error:
        kept = f"the checkpoint before it is {last}" if last.exists() else "there is no checkpoint before it"
        raise SystemExit(f"dragoman train: {error}; {kept}; use a lower learning rate or a safer precision") from error
    except SystemExit as end:  # Lightning raises it on Ctrl-C and SIGTERM
        advice = f"run the same command again to resume from {last}"
        status = TERMINATED if end.code == TERMINATED else INTERRUPTED
        raise ended(f"dragoman train: interrupted; {advice}", status) from end


def _report_too_long(segmentation: Segmentation, name: str) -> None:
    """Prints the number of pairs that exceed the model's limits; raises SystemExit if no pair is left."""
    left = len(segmentation.most_probable)
    total = sum(map(len, segmentation.corpora))
    if not left:
        raise SystemExit(f"dragoman train: all {total} {name} pairs exceed the token limits of the model")
    if left < total:
        print(f"{total - left} of {total} {name} pairs exceed the token limits of the model and are removed")


def _keep_config(folder: RunFolder, config: RunConfig, inputs: Inputs) -> None:
    """Writes configuration and inputs of a new run, or checks that a resumed run has the same ones."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"dragoman train: out: {folder.path}: {error.strerror}, expected a folder") from error
    if not folder.config.exists():
        # First, because a folder with a configuration is a run.
        write_whole(folder.inputs, inputs.to_yaml().encode())
        write_whole(folder.config, config.to_yaml().encode())
        return
    try:
        earlier = RunConfig.load(folder.config)
        first = Inputs.load(folder.inputs) if folder.inputs.exists() else inputs
    except RunError as error:
        raise SystemExit(f"dragoman train: out: {error}") from error
    if earlier != config:
        raise SystemExit(
            f"dragoman train: out: {folder.path}: expected a new folder, got a run with another configuration"
        )
    if differing := first.differing(inputs):
        raise SystemExit(
            f"dragoman train: {', '.join(differing)}: expected the same content as at the start of {folder.path}, got"
            " other content; repeat its command or use a new folder"
        )


def _make_tokenizer(
    folder: RunFolder, config: RunConfig, corpora: Sequence[Corpus], initial: TrainedModel | None
) -> RunTokenizer:
    if folder.tokenizer.exists() or folder.frozen_tokenizer.exists():
        return folder.load_tokenizer()
    if initial is not None and initial.config.tokenizer == config.tokenizer:
        tokenizer = initial.tokenizer
    else:
        print("training the tokenizer")
        try:
            tokenizer = train_tokenizer(
                balanced_lines(corpora, config.tokenizer.training_lines),
                config.tokenizer.vocabulary_size,
                kind=config.tokenizer.kind,
                character_coverage=config.tokenizer.character_coverage,
                target_languages=tagged_languages(config.directions),
            )
        except TokenizerError as error:
            size = config.tokenizer.vocabulary_size
            raise SystemExit(f"dragoman train: tokenizer.vocabulary-size: {size}: {error}") from error
    frozen = isinstance(tokenizer, FrozenTokenizer)
    write_whole(folder.frozen_tokenizer if frozen else folder.tokenizer, tokenizer.model)
    return tokenizer
