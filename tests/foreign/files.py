"""Files of other programs: `python -m tests.foreign.files FOLDER` gets packages and makes files, for `make foreign`.

What a folder holds already is not made again. A writer that is not installed makes no files.
"""

import csv
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import openpyxl
import xlsxwriter

from tests.support.cases import cases

ORIGINS: dict[str, Any] = cases(str(Path(__file__).with_name("origins.py")))
Rows = list[list[str]]
TABLES: dict[str, Rows] = ORIGINS["tables"]
# Rows of a table as JSON and a target are its arguments.
_EXCELJS = """
const [, table, target] = process.argv, {Workbook, stream} = require("exceljs")
const options = {filename: target, useSharedStrings: target.length % 2 === 0}
const write = async () => {
  const streamed = target.endsWith(".xlsx") && target.includes("s.")
  const book = streamed ? new stream.xlsx.WorkbookWriter(options) : new Workbook()
  const sheet = book.addWorksheet("A sheet")
  for (const row of JSON.parse(table)) streamed ? sheet.addRow(row).commit() : sheet.addRow(row)
  await (streamed ? book.commit() : target.endsWith(".csv") ? book.csv.writeFile(target) : book.xlsx.writeFile(target))
}
write()
"""
_EBOOKLIB = """
import json, sys
from ebooklib import epub
book = epub.EpubBook()
book.set_identifier("id"); book.set_title("A book of texts"); book.set_language("en"); book.add_author("Somebody")
page = epub.EpubHtml(title="A chapter", file_name="chapter.xhtml", lang="en")
page.content = sys.argv[1]
for item in (page, epub.EpubNcx(), epub.EpubNav()): book.add_item(item)
book.toc, book.spine = (page,), ["nav", page]
epub.write_epub(sys.argv[2], book)
"""


def run(*command: str | Path, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def unpack(package: str, folder: Path) -> Path:
    """Returns the folder of an unpacked Debian package."""
    target = folder / "packages" / package
    if not target.exists():
        archives = folder / "archives"
        for needed in (archives, target.parent):
            needed.mkdir(parents=True, exist_ok=True)
        if not list(archives.glob(f"{package}_*.deb")):
            run("apt-get", "download", "-q", package, folder=archives)
        run("dpkg-deb", "-x", next(archives.glob(f"{package}_*.deb")), target, folder=folder)
    return target


def packaged(suffix: str, package: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the paths and the contents of the files of a format that a package has."""
    root = unpack(package, folder)
    for path in sorted((root / ORIGINS["packages"][suffix][package]).rglob(f"*.{suffix}*")):
        if path.is_file() and not path.is_symlink() and path.name.endswith((suffix, f"{suffix}.gz")):
            content = path.read_bytes()
            yield str(path.relative_to(root)), gzip.decompress(content) if path.suffix == ".gz" else content


def is_installed(suffix: str, writer: str, folder: Path) -> bool:
    needed = ORIGINS["writers"][suffix][writer].format(folder)
    return not needed or shutil.which(needed) is not None or Path(needed).is_dir()


def written(suffix: str, writer: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the names and the contents of the files that a writer makes, one per table."""
    made = folder / "written" / writer
    made.mkdir(parents=True, exist_ok=True)
    for name, rows in TABLES.items():
        target = made / f"{name}.{suffix}"
        if not target.exists():
            _WRITERS[writer](rows, target, folder)
        yield target.name, target.read_bytes()


def _openpyxl(rows: Rows, target: Path, folder: Path) -> None:  # noqa: ARG001 - as all writers
    book = openpyxl.Workbook()
    for title in ("A sheet", "Another"):
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(target)


def _xlsxwriter(rows: Rows, target: Path, folder: Path) -> None:  # noqa: ARG001 - as all writers
    options = {"constant_memory": target.stem in ("plain", "lines", "spaces", "formulas", "long")}
    with xlsxwriter.Workbook(target, options) as book:
        sheet, bold = book.add_worksheet("A sheet"), book.add_format({"bold": True})
        for number, row in enumerate(rows):
            for column, text in enumerate(row):
                sheet.write_string(number, column, text)
        sheet.write_rich_string(len(rows), 0, "Some ", bold, "bold", " text")
        sheet.write_comment("A1", "A comment")


def _exceljs(rows: Rows, target: Path, folder: Path) -> None:
    run("node", "-e", _EXCELJS, "--", json.dumps(rows), target, folder=folder)


def _csv(rows: Rows, target: Path, folder: Path) -> None:  # noqa: ARG001 - as all writers
    dialects = {"quotes": "excel-tab", "lines": "unix", "scripts": "excel"}
    with target.open("w", newline="", encoding="utf-8-sig" if target.stem == "scripts" else "utf-8") as file:
        csv.writer(file, dialects.get(target.stem, "excel")).writerows(rows)


def _convert(rows: Rows, target: Path, folder: Path, *command: str) -> None:
    """Writes a file by converting that of another writer: a table in the other format."""
    source = target.with_suffix(".source.csv" if target.suffix == ".xlsx" else ".source.xlsx")
    (_csv if target.suffix == ".xlsx" else _openpyxl)(rows, source, folder)
    if command[0] == "ssconvert":
        run(*command, source, target, folder=folder)
    else:
        run(*command, target.suffix[1:], "--outdir", target.parent, source, folder=folder)
        source.with_suffix(target.suffix).rename(target)
    source.unlink()


def _markup(rows: Rows) -> str:
    escaped = [[text.replace("&", "&amp;").replace("<", "&lt;") for text in row] for row in rows]
    texts = "".join(f"<h2>{row[0]}</h2><p>{' '.join(row)} and <em>more</em>.</p>" for row in escaped)
    cells = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>" for row in escaped)
    return (
        f"<html><head><title>A book</title></head><body><h1>A chapter</h1>{texts}<table>{cells}</table></body></html>"
    )


def _book(rows: Rows, target: Path, folder: Path, *command: str) -> None:
    source = target.with_suffix(".html")
    source.write_text(_markup(rows), encoding="utf-8")
    version = ("-t", "epub2" if target.stem in ("plain", "quotes", "markup") else "epub3")
    run(*command, source, *(("-o", target, *version) if command[0] == "pandoc" else (target,)), folder=folder)
    source.unlink()


def _ebooklib(rows: Rows, target: Path, folder: Path) -> None:
    run(folder / "tools/bin/python", "-c", _EBOOKLIB, _markup(rows), target, folder=folder)


def _sphinx(rows: Rows, target: Path, folder: Path) -> None:
    source = target.with_suffix("")
    source.mkdir(exist_ok=True)
    (source / "conf.py").write_text("project, author, language = 'A book', 'Somebody', 'en'\n", encoding="utf-8")
    lines = (f"{' '.join(' '.join(row).split())} and *more*.\n" for row in rows)
    (source / "index.rst").write_text("\n".join(("A chapter", "=" * 9, "", *lines)), encoding="utf-8")
    run(folder / "tools/bin/sphinx-build", "-q", "-b", "epub", source, source / "out", folder=folder)
    next((source / "out").glob("*.epub")).rename(target)
    shutil.rmtree(source)


_WRITERS: dict[str, Callable[[Rows, Path, Path], None]] = {
    "openpyxl": _openpyxl,
    "XlsxWriter": _xlsxwriter,
    "ExcelJS": _exceljs,
    "Python": _csv,
    "LibreOffice": lambda *given: _convert(*given, "soffice", "--headless", "--convert-to"),
    "Gnumeric": lambda *given: _convert(*given, "ssconvert"),
    "pandoc": lambda *given: _book(*given, "pandoc"),
    "Calibre": lambda *given: _book(*given, "ebook-convert"),
    "ebooklib": _ebooklib,
    "Sphinx": _sphinx,
}


def main() -> None:
    """Gets packages and tools: those that may be installed into a folder, without the rights of root."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run("npm", "install", "--no-audit", "--no-fund", "--prefix", folder, "exceljs", folder=folder)
    run(sys.executable, "-m", "venv", folder / "tools", folder=folder)
    run(folder / "tools/bin/pip", "install", "--quiet", "ebooklib", "sphinx", folder=folder)
    for packages in ORIGINS["packages"].values():
        list(map(partial(unpack, folder=folder), packages))


if __name__ == "__main__":
    main()
