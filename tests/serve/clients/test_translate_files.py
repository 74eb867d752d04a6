"""Where `dragoman translate` writes files, and that it writes whole ones."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from dragoman.serve.clients.translate_files import DocumentFileError, output_paths, read_document, translate_document
from dragoman.serve.documents.document import DocumentRequest, Segment


async def capitals(segments: Sequence[Segment]) -> list[str]:
    return [segment.text.upper() for segment in segments]


def test_a_file_is_translated_next_to_its_source_or_into_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.txt"
    source.write_text("one\none\n\ntwo\n", encoding="utf-8")
    for out, expected in ((None, tmp_path / "a.de.txt"), (tmp_path / "out", tmp_path / "out" / "a.txt")):
        (path,) = output_paths([source], out, "de")
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


def test_no_translation_overwrites_a_source_or_another_one(tmp_path: Path) -> None:
    with pytest.raises(DocumentFileError, match="would overwrite"):
        output_paths([tmp_path / "a.txt"], tmp_path, "de")
    with pytest.raises(DocumentFileError, match="would overwrite"):
        output_paths([tmp_path / "b" / "a.txt", tmp_path / "c" / "a.txt"], tmp_path, "de")


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


@pytest.mark.parametrize("path", [".", "/"])
def test_a_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(DocumentFileError, match=f"^{path}: expected a file$"):
        output_paths([Path(path)], None, "de")


def test_links_in_a_circle_are_named(tmp_path: Path) -> None:
    loop, source = tmp_path / "loop", tmp_path / "a.txt"
    loop.symlink_to(loop)
    source.write_text("one\n", encoding="utf-8")
    document = read_document(source, DocumentRequest("en", "de"))
    (path,) = output_paths([source], loop, "de")
    with pytest.raises(DocumentFileError, match=f"^{loop}: "):
        asyncio.run(translate_document(source, document, path, capitals, 4))
    with pytest.raises(DocumentFileError, match=f"^{loop}: "):
        read_document(loop, DocumentRequest())


def test_a_language_that_cannot_be_part_of_a_name_is_refused() -> None:
    with pytest.raises(DocumentFileError, match=r"^--target-language: 'de/\.\./x', "):
        output_paths([Path("a.txt")], None, "de/../x")
