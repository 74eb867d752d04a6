"""`dragoman corpus included`: from archives to files for training, with what was read and its license."""

from hashlib import sha256
from pathlib import Path

import polib
import pytest
import yaml

from dragoman.command_line import run
from dragoman.model.data.corpus import read_corpora
from dragoman.model.data.sources import everyday, source_list
from dragoman.model.data.sources.command import IncludedCorpusCommand
from tests.support.packages import deb_of, zip_of

SOURCES = Path(__file__).with_name("corpus_sources.yaml").read_text("utf-8")
EVERYDAY = {
    "sentences/01-morning.tsv": "Good morning!\tGuten Morgen!\tBonjour !\tDobré ráno!\n",
    "words/01-house.tsv": "house\tHaus\tmaison\tdům\n",
    "held_out/test.tsv": "Open the file\tÖffne die Datei\tOuvre le fichier\tOtevři soubor\n",
    "held_out/validation.tsv": "Good night!\tGute Nacht!\tBonne nuit !\tDobrou noc!\n",
}


def catalog(folder: Path, messages: dict[str, str]) -> bytes:
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    file.extend(polib.POEntry(msgid=english, msgstr=other) for english, other in messages.items())
    file.save_as_mofile(str(folder / "messages.mo"))
    return (folder / "messages.mo").read_bytes()


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Archives of two packages, a list that has them, and everyday sentences."""
    folder = tmp_path / "archives"
    folder.mkdir()
    german = catalog(tmp_path, {"Open the file": "Datei öffnen", "Save the file": "Datei sichern"})
    french = catalog(tmp_path, {"Save the file": "Enregistrer le fichier"})
    package = deb_of({"usr/share/locale/de/tool.mo": german, "usr/share/locale/fr/tool.mo": french})
    (folder / "tool_1.0_all.deb").write_bytes(package)
    pages = {"en": "<p id='a'>Use it well. It is free.</p>", "de": "<p id='a'>Nutze es gut. Es ist frei.</p>"}
    wheel = zip_of({f"guide/help/{language}/a.html": page.encode() for language, page in pages.items()})
    (folder / "guide-1.1-py3-none-any.whl").write_bytes(wheel)
    listed = tmp_path / "sources.yaml"
    listed.write_text(SOURCES.replace("DIGEST", sha256(package).hexdigest()))
    monkeypatch.setattr(source_list, "SOURCES", listed)
    for name, text in EVERYDAY.items():
        path = tmp_path / "everyday" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(everyday, "EVERYDAY", tmp_path / "everyday")
    return folder


def write(archives: Path, *options: str) -> Path:
    out = archives.parent / "out"
    run("corpus included", ["--out", str(out), "--archives", str(archives), *options])
    return out


def test_parts_are_files_for_training_in_both_directions(archives: Path) -> None:
    out = write(archives)
    names = [f"{out}/train.{role}.en-de." for role in ("messages", "help", "everyday", "words")]
    (training,) = read_corpora([f"files:{name}en,{name}de" for name in names])
    assert dict(zip(training.sources, training.targets, strict=True)).items() >= {
        ("Save the file", "Datei sichern"),
        ("Use it well.", "Nutze es gut."),
        ("It is free.", "Es ist frei."),
        ("Good morning!", "Guten Morgen!"),
        ("house", "Haus"),
    }
    name = f"{out}/test.everyday.en-fr."
    (test,) = read_corpora([f"files:{name}fr,{name}en"])
    assert (test.sources, test.targets) == (["Ouvre le fichier"], ["Open the file"])


def test_training_has_no_held_out_text(archives: Path) -> None:
    assert "Open the file" not in (write(archives) / "train.messages.en-de.en").read_text().splitlines()


def test_a_list_of_sources_has_versions_hashes_and_licenses(archives: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = yaml.safe_load((write(archives) / "sources.yaml").read_text())
    assert read["license"] == "permissive licenses"
    assert read["sources"].keys() == {"tool", "guide"}
    assert read["sources"]["tool"]["license"] == "MIT"
    digest = sha256((archives / "guide-1.1-py3-none-any.whl").read_bytes()).hexdigest()
    assert read["sources"]["guide"]["packages"]["guide"] == {"registry": "pypi", "version": "1.1", "sha256": digest}
    assert read["parts"]["train.help.en-de"] == 2
    assert "guide: read version 1.1, expected 1.0" in capsys.readouterr().err


def test_languages_can_be_chosen(archives: Path) -> None:
    assert not [path for path in write(archives, "--languages", "fr").iterdir() if "en-de" in path.name]


def test_a_mixture_that_may_not_be_distributed_is_refused_before_anything_is_read(archives: Path) -> None:
    with pytest.raises(SystemExit, match=r"GFDL-1\.2-or-later: manual; GPL-2\.0-only: game"):
        write(archives, "--sources", "game,manual")
    assert not (archives.parent / "out").exists()


def test_an_unknown_source_is_named_with_the_known_ones(archives: Path) -> None:
    with pytest.raises(SystemExit, match="'toll': expected included, tool, guide, game, manual"):
        write(archives, "--sources", "toll")


def test_an_incomplete_row_of_everyday_sentences_is_named(archives: Path) -> None:
    (archives.parent / "everyday/words/01-house.tsv").write_text("house\tHaus\t\tdům\n")
    with pytest.raises(SystemExit, match=r"01-house\.tsv: line 1: expected a text in each of en, de, fr, cs"):
        write(archives)


def test_an_installation_without_everyday_sentences_names_those_that_have_them(archives: Path) -> None:
    (archives.parent / "everyday").rename(archives.parent / "elsewhere")
    with pytest.raises(SystemExit, match=r"everyday/held_out/\S+: no such file: expected a clone, a wheel or"):
        write(archives)


def test_nothing_is_written_if_an_archive_is_broken(archives: Path) -> None:
    (archives / "guide-1.1-py3-none-any.whl").write_bytes(b"PK")
    with pytest.raises(SystemExit, match=r"guide-1\.1-py3-none-any\.whl: cannot be read"):
        write(archives)
    assert not (archives.parent / "out").exists()


def test_archives_are_kept_in_the_cache_of_the_user() -> None:
    assert IncludedCorpusCommand(out=Path("out")).archives == Path("~/.cache/dragoman/sources")
