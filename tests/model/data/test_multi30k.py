"""Multi30k: downloaded once and completely, verified, with an explanation if it is missing."""

import gzip
import hashlib
import os
import shutil
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from itertools import permutations
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError

import pytest

from dragoman.model.data import multi30k
from dragoman.model.data.cleaning import Reason, read_training_data
from dragoman.model.data.corpus import read_corpora, read_corpus
from dragoman.model.data.multi30k import FOLDER_VARIABLE, TEXT_SHA256, default_folder, multi30k_text
from dragoman.model.errors import CorpusError
from tests.support.http_serving import QuietHandler, serving
from tests.support.paths import ROOT

DATA = Path(os.environ.get(FOLDER_VARIABLE, ROOT.parent / "shared" / "data" / "multi30k"))
TEXT = b"Two dogs run.\nA man sings.\n"

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{FOLDER_VARIABLE} names no folder with Multi30k")


class QuietFiles(QuietHandler, SimpleHTTPRequestHandler):
    """A file server without logs."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server in place of the data set's home, with one file as the published one."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "train.en.gz").write_bytes(gzip.compress(TEXT))
    with serving(partial(QuietFiles, directory=str(folder))) as address:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(multi30k, "HOME", address)
        monkeypatch.setitem(TEXT_SHA256, "train.en.gz", hashlib.sha256(TEXT).hexdigest())
        yield folder


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def test_a_missing_file_is_fetched_and_kept(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    assert multi30k_text(folder, "train", "en") == TEXT
    path = folder / "train.en.gz"
    assert path.read_bytes() == (home / "train.en.gz").read_bytes()
    assert list(folder.iterdir()) == [path]


@pytest.mark.usefixtures("home")
def test_a_file_is_fetched_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = multi30k_text(tmp_path, "train", "en")
    monkeypatch.setattr(multi30k, "HOME", "http://127.0.0.1:9")
    assert multi30k_text(tmp_path, "train", "en") == first


def test_a_file_may_be_compressed_anew(home: Path, tmp_path: Path) -> None:
    (home / "train.en.gz").write_bytes(gzip.compress(TEXT, compresslevel=1, mtime=1))
    assert multi30k_text(tmp_path, "train", "en") == TEXT


@pytest.mark.usefixtures("home")
def test_a_broken_transfer_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(response: Any, file: Any) -> NoReturn:
        file.write(response.read(10))
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(shutil, "copyfileobj", break_off)
    with pytest.raises(CorpusError, match=r"train\.en\.gz: .*reset by peer"):
        multi30k_text(tmp_path / "data", "train", "en")
    assert not any((tmp_path / "data").iterdir())


@pytest.mark.usefixtures("offline")
def test_without_a_network_the_error_explains_how_to_provide_the_files(tmp_path: Path) -> None:
    problem = r"train\.en\.gz: .*https://.*/train\.en\.gz .*not known.*--multi30k-folder or DRAGOMAN_MULTI30K"
    with pytest.raises(CorpusError, match=problem):
        multi30k_text(tmp_path, "train", "en")


@pytest.mark.usefixtures("offline")
def test_a_changed_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "val.de.gz").write_bytes(gzip.compress(TEXT))
    with pytest.raises(CorpusError, match=rf"val\.de\.gz: sha256 .*, got {hashlib.sha256(TEXT).hexdigest()}$"):
        multi30k_text(tmp_path, "validation", "de")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"plain text", id="not packed"),
        # Its header contains the time, which must not become part of a test name.
        pytest.param(gzip.compress(TEXT)[:-5], id="cut off"),
        pytest.param(gzip.compress(TEXT)[:10] + b"\xff", id="damaged"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "val.de.gz").write_bytes(content)
    with pytest.raises(CorpusError, match=r"val\.de\.gz: "):
        multi30k_text(tmp_path, "validation", "de")


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "dragoman" / "multi30k"


@pytest.mark.usefixtures("offline")
def test_a_corpus_that_cannot_be_fetched_is_a_corpus_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="--multi30k-folder"):
        read_corpus("multi30k:en-de", multi30k_folder=tmp_path)


@needs_data
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("split", "pairs"), [("train", 29_000), ("validation", 1_014), ("test", 1_000)])
def test_the_published_data_has_so_many_pairs(split: str, pairs: int) -> None:
    corpus = read_corpus("multi30k:en-de", split, DATA)
    assert (corpus.source_language, corpus.target_language, len(corpus)) == ("en", "de", pairs)


@needs_data
@pytest.mark.usefixtures("offline")
def test_every_ordered_pair_of_languages_is_aligned() -> None:
    """All languages describe the same picture."""
    english = read_corpus("multi30k:en-de", "test", DATA).sources
    for language in ("cs", "fr", "de"):
        assert read_corpus(f"multi30k:{language}-en", "test", DATA).targets == english


@needs_data
@pytest.mark.usefixtures("offline")
def test_all_means_every_ordered_pair_of_languages() -> None:
    corpora = read_corpora(["multi30k:all"], "validation", DATA)
    assert {corpus.languages for corpus in corpora} == set(permutations(("cs", "de", "en", "fr"), 2))
    assert len(corpora) == 12
    assert corpora[0] == read_corpus("multi30k:cs-de", "validation", DATA)


@needs_data
@pytest.mark.usefixtures("offline")
def test_each_file_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In however many directions it occurs."""
    decompress = gzip.decompress
    sizes: list[int] = []

    def count(data: bytes) -> bytes:
        sizes.append(len(data))
        return decompress(data)

    monkeypatch.setattr(gzip, "decompress", count)
    read_corpora(["multi30k:all"], "validation", DATA)
    assert len(sizes) == 4


@needs_data
@pytest.mark.usefixtures("offline")
def test_one_direction_is_expected_where_one_is_needed() -> None:
    with pytest.raises(CorpusError, match=r"^multi30k:all: expected one direction, .*, got 12$"):
        read_corpus("multi30k:all", "validation", DATA)


@needs_data
@pytest.mark.usefixtures("offline")
def test_it_is_validated_on_its_own_part() -> None:
    """Its training part loses two pairs with an absurd length ratio, and duplicates."""
    data = read_training_data(["multi30k:en-de"], multi30k_folder=DATA)
    assert data.training[0].dropped == {**dict.fromkeys(Reason, 0), Reason.RATIO: 2, Reason.DUPLICATE: 3}
    assert [len(corpus) for corpus in data.validation] == [1014]
