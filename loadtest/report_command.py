"""`dragoman load report`: what several loads found on one page."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from loadtest.report_files import ReportFileError


class LoadReportCommand(BaseSettings):
    """Compare loads on one page: tables and plots of what `dragoman load --out FOLDER` wrote as load.json.

    The page is a single file that loads nothing; each report is named after its folder.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_REPORT_", frozen=True, extra="forbid")

    reports: CliPositionalArg[list[Path]] = Field(min_length=1, description="files load.json")
    out: Path = Field(Path("load.html"), description="The page.")

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
    """Returns the reports by short names, or by whole paths if those are not different."""
    short = {path.parent.resolve().name if path.stem == "load" else path.stem: path for path in paths}
    return short if len(short) == len(paths) else {str(path): path for path in paths}
