"""`dragoman load report`: compares several loads on one page."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from loadtest.report_files import ReportFileError


class LoadReportCommand(BaseSettings):
    """Compare loads on one page: tables and plots of the load.json files of `dragoman load --out FOLDER`.

    The page is a single file that loads no other files. Each report is named after its folder.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_REPORT_", frozen=True, extra="forbid")

    reports: CliPositionalArg[list[Path]] = Field(min_length=1, description="load.json files to compare")
    out: Path = Field(Path("load.html"), description="HTML page to write.")

    def cli_cmd(self) -> None:
        """Writes the page."""
        from loadtest.report import read_report, render  # noqa: PLC0415 - matplotlib takes a second to import

        try:
            names = _names(self.reports)
            page = render({name: read_report(path) for name, path in names.items()})
            self.out.write_text(page, encoding="utf-8")
        except (OSError, ReportFileError) as error:
            raise SystemExit(f"dragoman load report: {error}") from error
        print(self.out)


def _names(paths: list[Path]) -> dict[str, Path]:
    """Maps names to paths: short names if they are unique, else whole paths."""
    short = {path.parent.resolve().name if path.stem == "load" else path.stem: path for path in paths}
    return short if len(short) == len(paths) else {str(path): path for path in paths}
