"""Where `dragoman translate` writes files, and that it writes whole ones."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.errors import UsageError
from dragoman.serve.clients.file_plan import DocumentFileError, FilePlan
from dragoman.serve.clients.translate_files import read_document, translate_document
from dragoman.serve.documents.document import DocumentRequest, Segment
from tests.support.cases import cases

CASES = cases(__file__)


async def capitals(segments: Sequence[Segment]) -> list[str]:
    return [segment.text.upper() for segment in segments]


def test_a_file_is_translated_next_to_its_source_or_into_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.txt"
    source.write_text("one\none\n\ntwo\n", encoding="utf-8")
    for out, expected in ((None, tmp_path / "a.de.txt"), (tmp_path / "out", tmp_path / "out" / "a.txt")):
        (path,) = outputs_of(source, out=out).values()
        assert path == expected
        asyncio.run(translate_document(source, read_document(source, DocumentRequest("en", "de")), path, capitals, 4))
        assert path.read_text(encoding="utf-8") == "ONE\nONE\n\nTWO\n"
        assert f"{source}: translated to {path}\n" in capsys.readouterr().err


def test_the_cells_that_get_an_apostrophe_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("one,two\n", encoding="utf-8")

    async def formulas(segments: Sequence[Segment]) -> list[str]:
        return [f"={segment.text}" for segment in segments]

    asyncio.run(translate_document(source, read_document(source, DocumentRequest("en", "de")), target, formulas, 4))
    assert target.read_text(encoding="utf-8") == "'=one,'=two\n"
    assert "2 cells begin as formulas and got an apostrophe (--csv-formulas keep)" in capsys.readouterr().err


def outputs_of(*paths: Path, **plan: Any) -> dict[Path, Path]:
    return FilePlan(**{"target": "de"} | plan).find(paths).outputs


def write_folder(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("one\n", encoding="utf-8")


def test_no_translation_overwrites_a_source_or_another_one(tmp_path: Path) -> None:
    with pytest.raises(DocumentFileError, match="would overwrite"):
        outputs_of(tmp_path / "a.txt", out=tmp_path)
    with pytest.raises(DocumentFileError, match="would overwrite"):
        outputs_of(tmp_path / "b" / "a.txt", tmp_path / "c" / "a.txt", out=tmp_path)


@pytest.mark.parametrize(("plan", "expected"), CASES["the files below a folder are chosen by patterns and named"])
def test_the_files_below_a_folder_are_chosen_by_patterns_and_named(
    plan: dict[str, Any], expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(Path("in"), "a.md", "b.TXT", "c.xyz", "de/old.md", "sub/d.md", "sub/.hidden.md", ".git/e.md", "f.Pdf")
    options: dict[str, Any] = {"out": "in/de", "source": "en", "target": "de"} | plan
    files = FilePlan(**options | {"out": Path(options["out"])}).find([Path("in")])
    assert {str(file): str(path) for file, path in files.outputs.items()} == expected
    assert files.unknown == ([] if "include" in plan else [Path("in/c.xyz")])


@pytest.mark.parametrize("out", [None, Path()])
def test_the_translations_of_a_folder_need_another_folder(
    out: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^\.: expected --out with another folder$"):
        outputs_of(Path(), out=out)


@pytest.mark.parametrize(("name", "problem"), CASES["a pattern that gives no name of a file is refused"])
def test_a_pattern_that_gives_no_name_of_a_file_is_refused(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        outputs_of(Path("a.txt"), name=name, target="" if "target" in name else "de")


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text("{", encoding="utf-8")
    with pytest.raises(DocumentFileError, match=r"a\.json: not JSON"):
        read_document(source, DocumentRequest())


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("one\n", encoding="utf-8")
    document = read_document(source, DocumentRequest("en", "de"))
    with pytest.raises(DocumentFileError, match=rf"^{source}: is a file, expected a folder$"):
        asyncio.run(translate_document(source, document, source / "b.txt", capitals, 4))


def test_links_in_a_circle_are_named(tmp_path: Path) -> None:
    loop, source = tmp_path / "loop", tmp_path / "a.txt"
    loop.symlink_to(loop)
    source.write_text("one\n", encoding="utf-8")
    document = read_document(source, DocumentRequest("en", "de"))
    (path,) = outputs_of(source, out=loop).values()
    with pytest.raises(DocumentFileError, match=f"^{loop}: "):
        asyncio.run(translate_document(source, document, path, capitals, 4))
    with pytest.raises(DocumentFileError, match=f"^{loop}: "):
        read_document(loop, DocumentRequest())


def test_a_language_that_cannot_be_part_of_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"gives 'a\.de/\.\./x\.txt', expected the name of a file$"):
        outputs_of(Path("a.txt"), target="de/../x")
