"""The help of commands shows placeholders with units instead of Python types, and groups."""

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import BaseSettings, CliPositionalArg, CliSettingsSource

import dragoman
from serve.command_help import HelpFormatter, arrange_help


class Layer(BaseModel):
    """One of two sections."""

    kind: Literal["dense"] = "dense"
    width: int = Field(8, description="width of the layer")


class Recurrence(BaseModel):
    """The other one."""

    kind: Literal["recurrent"] = "recurrent"
    gates: int = 3


class Command(BaseSettings):
    """Computes.

    First line
    of a paragraph.
    """

    HELP_GROUPS: ClassVar[dict[str, str]] = {"verbose": "output", "wait_seconds": "times"}

    source: CliPositionalArg[Path] = Field(description="file to read")
    out: Path = Field(description="folder to write.")
    layer: Layer | Recurrence = Layer(width=16)
    wait_seconds: float = Field(2.0, description="time; 5 % more is possible")
    timeout_seconds: float | None = Field(None, description="limit. Default: none.")
    verbose: bool = Field(False, description="prints more")
    numbers: tuple[int, ...] = Field((1, 2), description="numbers")
    limit: int | Literal["auto"] = Field("auto", description="limit")
    key: SecretStr | None = Field(None, description="key")
    models: dict[str, Layer] = Field({}, description="settings of models")
    heads: str = Field("", description="heads", json_schema_extra={"placeholder": "LAYER:HEAD"})
    host: str = Field("0.0.0.0", description="gRPC address")  # noqa: S104 - only shown


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> ArgumentParser:
    monkeypatch.setenv("COLUMNS", "200")
    source: CliSettingsSource[ArgumentParser] = CliSettingsSource(
        Command,
        cli_prog_name="command",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        formatter_class=HelpFormatter,
    )
    arrange_help(source.root_parser, Command)
    return source.root_parser


def test_the_usage_names_required_options(parser: ArgumentParser) -> None:
    assert parser.format_usage() == "usage: command --out FOLDER [OPTION ...] SOURCE\n"


@pytest.mark.parametrize(
    "line",
    [
        "Computes. First line of a paragraph.",
        "--out FOLDER Folder to write (required)",
        "--wait-seconds SECONDS Time; 5 % more is possible (default: 2)",
        "--timeout-seconds SECONDS Limit (default: none)",
        "--verbose, --no-verbose Prints more (default: off)",
        "--numbers N,... Numbers (default: 1,2)",
        "--limit N|{auto} Limit (default: auto)",
        "--key KEY Key",
        "--models JSON Settings of models",
        "--heads LAYER:HEAD Heads",
        "--host ADDRESS gRPC address (default: 0.0.0.0)",
        "--layer.kind {dense,recurrent} (default: dense)",
        "--layer.width N Width of the layer (default: 16)",
        "SOURCE File to read",
    ],
)
def test_an_option_has_a_placeholder_and_one_default(parser: ArgumentParser, line: str) -> None:
    assert f" {line}" in " ".join(parser.format_help().split())


def test_groups_have_the_order_of_their_titles_and_come_before_sections(parser: ArgumentParser) -> None:
    titles = re.findall(r"^(\S.*):$", parser.format_help(), re.MULTILINE)
    assert titles == ["arguments", "options", "output", "times", "layer options"]


@pytest.mark.parametrize("name", dragoman.COMMANDS)
def test_a_group_begins_with_a_field(name: str) -> None:
    command = dragoman.load_command(name)
    for cls in command.__mro__:
        assert set(vars(cls).get("HELP_GROUPS", {})) <= command.model_fields.keys()
