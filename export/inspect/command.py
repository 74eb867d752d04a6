"""`dragoman inspect`: what a bundle is, what its graphs do, what memory it takes. Serves nothing and needs no torch.

The libraries that read graphs and draw are imported only when the command runs, so that their lack can be explained.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field, TypeAdapter
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from serve.bundle.bundle import Bundle, BundleError
from serve.settings import ServeSettings

DEFAULT_SLOTS: int = ServeSettings.model_fields["slots"].default


class InspectCommand(BaseSettings):
    """Tells what is in a bundle.

    Checks every checksum, then prints what the model is, the files, inputs, outputs and operators of both graphs, the
    operators that ONNX Runtime runs in their place, the blocks of a decoder step, and the memory that serving takes.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_INSPECT_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`")
    slots: int = Field(DEFAULT_SLOTS, ge=1, description="slots of each engine, as `dragoman serve` takes them")
    picture: Path | None = Field(None, description="SVG file that gets a picture of one decoder step")
    json_file: Path | None = Field(None, description="file that gets all figures")

    def cli_cmd(self) -> None:
        """Prints the figures; writes the files that were asked for."""
        self._check_output_folders()
        with _explained("onnx", "reads the graphs", "export"):
            from export.inspect.figures import (  # noqa: PLC0415 - needs onnx
                Inspection,
                format_inspection,
                inspect,
            )
        if self.picture is not None:
            with _explained("matplotlib", "draws the picture", "train"):
                from export.inspect.picture import draw_step  # noqa: PLC0415 - needs matplotlib
        try:
            inspection = inspect(Bundle.open(self.bundle), self.slots)
        except (BundleError, OSError) as error:
            raise SystemExit(f"dragoman inspect: bundle: {error}") from error
        print(format_inspection(inspection))
        try:
            if self.json_file is not None:
                self.json_file.write_bytes(TypeAdapter(Inspection).dump_json(inspection, indent=1) + b"\n")
            if self.picture is not None:
                draw_step(inspection, self.picture)
        except OSError as error:
            raise SystemExit(f"dragoman inspect: {error}") from error

    def _check_output_folders(self) -> None:
        for option, path in (("picture", self.picture), ("json", self.json_file)):
            if path is not None and (path.is_dir() or not path.parent.is_dir()):
                raise SystemExit(f"dragoman inspect: {option}: {path}: expected a file in a folder that exists")


@contextmanager
def _explained(library: str, purpose: str, extra: str) -> Iterator[None]:
    """Ends the command with one line if a library is missing in the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise SystemExit(
            f"dragoman inspect: {library} is not installed, which {purpose}: pip install '.[{extra}]'"
        ) from error
