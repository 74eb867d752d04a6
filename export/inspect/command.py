"""`dragoman inspect`: prints the content of a bundle and its memory use."""

from pathlib import Path

from pydantic import Field, TypeAdapter
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.export.inspect.figures import Inspection, format_inspection, inspect
from dragoman.model.errors import UsageError
from dragoman.model.output_file import check_output
from dragoman.serve.bundle.bundle import Bundle, BundleError, damage_explained
from dragoman.serve.native.library import InstructionsError
from dragoman.serve.settings import ServeSettings

STANDARD_OUTPUT = "-"
DEFAULT_SLOTS: int = ServeSettings.model_fields["slots"].default


class InspectCommand(BaseSettings):
    """Describes a bundle, or with --cpu this machine.

    Verifies every checksum, then prints the model, the files, and the memory of an engine.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_INSPECT_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    bundle: CliPositionalArg[Path | None] = Field(None, description="folder of the bundle")
    cpu: bool = Field(False, description="print what computes models on this machine instead, and why")
    slots: int = Field(DEFAULT_SLOTS, ge=1, description="slots of each engine, as for `dragoman serve`")
    json_file: Path | None = Field(
        None,
        description="JSON file for all figures; without a value, they are printed instead of the text",
        json_schema_extra={"without_value": STANDARD_OUTPUT},
    )

    def cli_cmd(self) -> None:
        """Prints the figures and writes the requested file."""
        if self.cpu:
            print(_describe_processor())
            return
        if self.bundle is None:
            raise UsageError("bundle: expected a folder, or --cpu")
        check_output("inspect", "json", self.json_file)
        try:
            with damage_explained(self.bundle):
                inspection = inspect(Bundle.open(self.bundle), self.slots)
                figures = TypeAdapter(Inspection).dump_json(inspection, indent=1).decode()
                text = figures if self.json_file == Path(STANDARD_OUTPUT) else format_inspection(inspection)
        except BundleError as error:
            raise BundleError(f"bundle: {error}") from error
        print(text)
        if self.json_file is not None and self.json_file != Path(STANDARD_OUTPUT):
            with damage_explained(self.bundle, OSError):  # of the file that is written
                self.json_file.write_bytes(f"{figures}\n".encode())


def _describe_processor() -> str:
    from dragoman.export.inspect.processor import describe_processor  # noqa: PLC0415 - needs ONNX Runtime

    try:
        return describe_processor()
    except InstructionsError as error:
        raise SystemExit(f"dragoman inspect: {error}") from error
