"""`dragoman completion`: prints the script that lets a shell complete commands, options and their values."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

Shell = Literal["bash", "zsh", "fish"]


class CompletionCommand(BaseSettings):
    """Print a script that completes commands, options, their values and names of installed models.

    The script starts only find, sed and sort, that of fish also sh. Save it where the shell looks for it: as
    ~/.local/share/bash-completion/completions/dragoman, as _dragoman in a folder of $fpath of zsh, or as
    ~/.config/fish/completions/dragoman.fish.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_COMPLETION_", frozen=True, extra="forbid")

    shell: CliPositionalArg[Shell] = Field(description="bash, zsh or fish")

    def cli_cmd(self) -> None:
        """Prints the script."""
        print(script(self.shell).read_text(encoding="utf-8"), end="")


def script(shell: str) -> Path:
    """Returns the file with the script of a shell, which `make tables` writes."""
    return Path(__file__).with_suffix(f".{shell}")
