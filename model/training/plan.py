"""`dragoman plan`: trains a list of variants of a recipe with several seeds, and prints a table of their validation.

A plan is a YAML file:

    data: [multi30k:en-de]
    recipe: multi30k
    seeds: [1, 2, 3]
    runs:
      baseline: {}
      r-drop-2: {training: {r_drop: 2}}
      wide: {model: {d_model: 256, d_ff: 512}}

`runs` has the changes of each run. They replace options of the recipe, the recipe itself or the data. A run is written
to `NAME/seed-N`. The command never reads test data, because a choice between runs must not depend on them.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.model.config import Direction, RunConfig, Section, Seed, read_yaml, recipe_path
from dragoman.model.data.cleaning import read_training_data
from dragoman.model.data.corpus import Specifications
from dragoman.model.errors import CorpusError, describe_os_error, first_problem, reason_of
from dragoman.model.run import RunFolder, write_whole
from dragoman.model.text_table import format_table
from dragoman.model.training.curves import read_measures
from dragoman.model.training.initial import differing_options
from dragoman.model.training.inputs import Inputs
from dragoman.model.training.train import SECTIONS, TrainCommand
from dragoman.model.training.trainer import MONITORS

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
# Stands for the directions of the data, which are not read to check options.
_ANY_DIRECTION = (Direction(source="en", target="de"),)


class Changes(Section):
    """The changes of one run of a plan."""

    data: Specifications | None = Field(None, description="training data instead of the plan's")
    recipe: str | None = Field(None, description="recipe instead of the plan's")
    model: dict[str, Any] = Field(default_factory=dict, description="options over those of the recipe")
    cleaning: dict[str, Any] = Field(default_factory=dict, description="options over those of the recipe")
    tokenizer: dict[str, Any] = Field(default_factory=dict, description="options over those of the recipe")
    training: dict[str, Any] = Field(default_factory=dict, description="options over those of the recipe")


class RunPlan(Section):
    """A recipe with its data, and runs that change one or more options."""

    data: Specifications = Field(min_length=1, description="training data, as for `dragoman train`")
    validation: Specifications = Field((), description="validation data of every run, as for `dragoman train`")
    recipe: str = Field(description="name in model/recipes/ or YAML file")
    seeds: tuple[Seed, ...] = Field((1,), min_length=1, description="seeds of every run")
    runs: dict[Name, Changes] = Field(min_length=1, description="changes by the name of the run")

    @model_validator(mode="after")
    def _check_options(self) -> "RunPlan":
        """Checks the options of all runs, so that a mistake in the last one is found before the first one starts."""
        for name in self.runs:
            try:
                RunConfig.model_validate({"directions": _ANY_DIRECTION, **self.options(name)})
            except OSError as error:
                raise ValueError(f"runs: {name}: {describe_os_error(error)}") from error
            except ValueError as error:
                raise ValueError(f"runs: {name}: {reason_of(error)}") from error
        return self

    def data_of(self, name: str) -> Specifications:
        """Returns the training data of a run: its own, or that of the plan."""
        return self.runs[name].data or self.data

    def options(self, name: str) -> dict[str, dict[str, Any]]:
        """Returns the sections of a run's recipe, with changes; raises OSError and ValueError like `read_recipe`."""
        changes = self.runs[name]
        path = recipe_path(changes.recipe or self.recipe)
        recipe = read_yaml(path)
        if not isinstance(recipe, dict) or not all(isinstance(section, dict) for section in recipe.values()):
            raise ValueError(f"{path}: expected a recipe")
        return {**recipe, **{section: {**recipe.get(section, {}), **getattr(changes, section)} for section in SECTIONS}}


class PlanCommand(BaseSettings):
    """Trains the runs of a plan one after another, for all seeds, and prints a table of their best validations.

    Run the same command again to continue after an interruption. A run that fails does not stop the others.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_PLAN_", frozen=True, extra="forbid")

    plan: CliPositionalArg[Path] = Field(
        description="YAML file with data, recipe, seeds and runs; see docs/training.md"
    )
    out: Path = Field(description="folder of the runs; NAME/seed-N each")
    table: bool = Field(False, description="only print the table of the runs so far")

    def cli_cmd(self) -> None:
        """Trains what is not trained yet, and prints the table."""
        plan = self._read()
        for run in _order(plan):
            self._check_options(plan, *run)
        if not self.table:
            self._check_data(plan)
        failed = (
            []
            if self.table
            else [f"{folder_of(self.out, *run).path}" for run in _order(plan) if not self._train(plan, *run)]
        )
        print(format_results(plan, self.out))
        if failed:
            raise SystemExit(f"dragoman plan: failed: {', '.join(failed)}; run the same command again to repeat them")

    def _read(self) -> RunPlan:
        try:
            return RunPlan.model_validate(read_yaml(self.plan))
        except ValidationError as error:
            raise SystemExit(f"dragoman plan: {self.plan}: {first_problem(error)}") from error
        except ValueError as error:
            raise SystemExit(f"dragoman plan: {self.plan}: {error}") from error

    def _check_options(self, plan: RunPlan, name: str, seed: int) -> None:
        """Raises SystemExit if a run exists with other options than those of the plan."""
        run = folder_of(self.out, name, seed)
        if not run.config.exists():
            return
        earlier = RunConfig.load(run.config)
        command = self._command(plan, name, seed)
        difference = next(differing_options(earlier, command.configuration(earlier.directions), SECTIONS), None)
        if difference is not None:
            option, expected, given = difference
            raise SystemExit(
                f"dragoman plan: {run.path}: {option}: expected {expected} as in this run, got {given};"
                " give the changed run another name"
            )

    def _check_data(self, plan: RunPlan) -> None:
        """Raises SystemExit if a finished run has other data; `dragoman train` checks the others."""
        read_inputs = cache(lambda *arguments: Inputs.of(read_training_data(*arguments)))
        for name, seed in _order(plan):
            run = folder_of(self.out, name, seed)
            if not run.done.exists() or not run.inputs.exists():
                continue
            command = self._command(plan, name, seed)
            try:
                inputs = read_inputs(command.data, command.validation, command.multi30k_folder, command.cleaning)
            except CorpusError as error:
                raise SystemExit(f"dragoman plan: {run.path}: data: {error}") from error
            # The environment gives only the data: an initial model in it and its base pairs are not part of the plan.
            mine = {"data", "validation"}
            differing = [option for option in Inputs.load(run.inputs).differing(inputs) if option in mine]
            if differing:
                raise SystemExit(
                    f"dragoman plan: {run.path}: {', '.join(differing)}: expected the same content as in this run, got"
                    " other content; give the changed run another name"
                )

    def _command(self, plan: RunPlan, name: str, seed: int) -> TrainCommand:
        """Returns the command that trains a run, with options of the environment."""
        options: dict[str, Any] = {"training": {"seed": seed}}
        with TemporaryDirectory() as folder:
            recipe = Path(folder) / "recipe.yaml"
            recipe.write_text(yaml.safe_dump(plan.options(name)), encoding="utf-8")
            return TrainCommand(
                data=plan.data_of(name),
                validation=plan.validation,
                out=folder_of(self.out, name, seed).path,
                recipe=str(recipe),
                **options,
            )

    def _train(self, plan: RunPlan, name: str, seed: int) -> bool:
        """Trains one run in a process of its own, which frees its memory; returns whether the run is complete."""
        run = folder_of(self.out, name, seed)
        if run.done.exists():
            return True
        recipe = self.out / name / "recipe.yaml"
        recipe.parent.mkdir(parents=True, exist_ok=True)
        write_whole(recipe, yaml.safe_dump(plan.options(name), sort_keys=False).encode())
        arguments = ["--recipe", str(recipe), "--training.seed", str(seed), "--out", str(run.path)]
        for option, values in (("--data", plan.data_of(name)), ("--validation", plan.validation)):
            arguments += [argument for value in values for argument in (option, value)]
        print(f"{run.path}:", flush=True)
        subprocess.run([sys.executable, "-m", "dragoman", "train", *arguments], check=False)  # noqa: S603  no shell
        return run.done.exists()


def folder_of(out: Path, name: str, seed: int) -> RunFolder:
    """Returns the folder of a run of a plan."""
    return RunFolder(out / name / f"seed-{seed}")


def _order(plan: RunPlan) -> Iterator[tuple[str, int]]:
    """Yields every run with the first seed, then with the second: all runs can be compared early."""
    return ((name, seed) for seed in plan.seeds for name in plan.runs)


def format_results(plan: RunPlan, out: Path) -> str:
    """Returns a table with a row per run: its best validation as mean and standard deviation over the seeds so far."""
    rows = [["run", "selection", "seeds", "complete", "steps", "best", "deviation"]]
    for name in plan.runs:
        selection = RunConfig.model_validate({"directions": _ANY_DIRECTION, **plan.options(name)}).training.selection
        runs = [folder_of(out, name, seed) for seed in plan.seeds]
        results = list(filter(None, (_best_and_last(run, selection) for run in runs)))
        best = [value for value, _ in results]
        rows.append(
            [
                name,
                selection,
                f"{len(results)}/{len(plan.seeds)}",
                str(sum(run.done.exists() for run in runs)),
                f"{max((step for _, step in results), default=0):,}",
                f"{fmean(best):.2f}" if best else "",
                f"{stdev(best):.2f}" if len(best) > 1 else "",
            ]
        )
    return format_table(rows, 2)


def _best_and_last(run: RunFolder, selection: str) -> tuple[float, int] | None:
    """Returns the best validation of a run, by its own selection, and the last step; None before the first one."""
    measure, mode = MONITORS[selection]
    values = read_measures(run.logs).get(measure) if run.logs.is_dir() else None
    if not values:
        return None
    # Lightning counts the step of a validation from 0.
    return max(values.values()) if mode == "max" else min(values.values()), max(values) + 1
