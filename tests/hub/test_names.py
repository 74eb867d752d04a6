"""What names mean, and what the catalog and licenses state."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.hub import names
from dragoman.hub.argos import find_package
from dragoman.hub.catalog import read_catalog
from dragoman.hub.licenses import describe_license, forbids_commercial_use
from dragoman.hub.names import ArgosModel, HubError, LocalModel, RepositoryModel, parse_name
from dragoman.serve.settings import SHIPPED_BUNDLE
from tests.support.cases import cases
from tests.support.fake_hub import FakeHub

CASES = cases(__file__)


@pytest.mark.parametrize(
    ("name", "kind", "fields"), [*CASES["a name has one meaning"], ("included", "LocalModel", [SHIPPED_BUNDLE])]
)
def test_a_name_has_one_meaning(name: str, kind: str, fields: list[Any]) -> None:
    assert parse_name(name) == getattr(names, kind)(*fields)


@pytest.mark.parametrize(
    ("name", "problem"), [*CASES["other names are refused"], ("x" * 300, "no such file or folder")]
)
def test_other_names_are_refused(name: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HubError, match=problem):
        parse_name(name)


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_refused_in_one_line(text: str) -> None:
    try:
        parse_name(text)
    except HubError as error:
        assert str(error).isprintable()  # noqa: PT017 - most texts are refused, and some are not


def test_a_folder_precedes_other_meanings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "en-de").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert [parse_name(name) for name in ("en-de", "a/b", "ct2:a/b")] == [
        LocalModel(Path("en-de")),
        LocalModel(Path("a/b")),
        LocalModel(Path("a/b")),
    ]


def test_every_model_of_the_catalog_has_a_name_that_is_pulled() -> None:
    catalog = read_catalog()
    assert len({(entry.source, entry.target) for entry in catalog}) == len(catalog)
    assert all(isinstance(parse_name(entry.model), RepositoryModel | ArgosModel) for entry in catalog)


@pytest.mark.parametrize(("name", "forbids"), CASES["a license for non commercial use is recognized"])
def test_a_license_for_non_commercial_use_is_recognized(name: str | None, forbids: bool) -> None:
    assert forbids_commercial_use(name) is forbids
    assert ("forbids commercial use" in describe_license(name)) is forbids


def test_the_newest_argos_package_of_the_languages_is_found(fake_hub: FakeHub) -> None:
    for version in ("1_2", "1_10", "1_9"):
        fake_hub.packages[f"translate-en_es-{version}.argosmodel"] = b"content"
    fake_hub.packages["translate-es_en-2_0.argosmodel"] = b"other"
    package = find_package(ArgosModel("en", "es"))
    assert package.origin == f"{fake_hub.address}/argos/translate-en_es-1_10.argosmodel"
    assert package.files[0].size_bytes == len(b"content")
    with pytest.raises(HubError, match="has no package for these languages"):
        find_package(ArgosModel("de", "es"))


def test_an_index_that_is_none_is_refused(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOS_PACKAGE_INDEX", f"{fake_hub.address}/elsewhere")
    with pytest.raises(HubError, match="404"):
        find_package(ArgosModel("en", "es"))
