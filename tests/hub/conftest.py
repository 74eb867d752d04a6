"""A hub on this machine with a random Marian checkpoint, and an empty cache."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from dragoman.hub import connection
from dragoman.hub.install import install
from dragoman.hub.names import HubError
from dragoman.hub.store import Store
from tests.support.fake_hub import FakeHub, Repository, run_hub
from tests.support.marian import marian_vocabulary, random_marian, write_marian
from tests.support.scripted_server import ScriptedServer, run_scripted_server

NAME = "Helsinki-NLP/opus-mt-en-de"


def pulled_files(fake: FakeHub) -> list[str]:
    return [path.split("/resolve/")[1].partition("/")[2] for _, path, _ in fake.requests if "/resolve/" in path]


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def refusal(store: Store, name: str = NAME) -> str:
    with pytest.raises(HubError) as refused:
        install(store, name)
    return str(refused.value)


def left(store: Store) -> list[str]:
    """Returns the files in the cache, except locks."""
    paths = [path for path in store.folder.rglob("*") if path.is_file() and "locks" not in path.parts]
    return sorted(str(path.relative_to(store.folder)) for path in paths)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a repository, with safetensors and with files that no conversion needs."""
    vocabulary = marian_vocabulary()
    folder = write_marian(tmp_path_factory.mktemp("hub") / "m", random_marian(len(vocabulary)), vocabulary)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return files | {"tf_model.h5": bytes(100_000), "README.md": b"A model."}


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub without repositories; the library is pointed at it."""
    with run_hub() as fake:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", fake.address)
        monkeypatch.setenv("HF_ENDPOINT", fake.address)
        monkeypatch.setattr(connection, "FIRST_PAUSE_SECONDS", 0.0)
        monkeypatch.setenv("ARGOS_PACKAGE_INDEX", f"{fake.address}/argos")
        monkeypatch.setenv("DRAGOMAN_FIREFOX_MODELS", f"{fake.address}/firefox")
        monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "cache"))
        yield fake


@pytest.fixture
def hub(fake_hub: FakeHub, checkpoint: dict[str, bytes]) -> FakeHub:
    repository = Repository()
    repository.commit(checkpoint)
    fake_hub.repositories[NAME] = repository
    return fake_hub


@pytest.fixture
def store(fake_hub: FakeHub) -> Store:
    """An empty cache."""
    assert fake_hub.address
    return Store.of_user()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A server without answers; the client does not pause between attempts."""
    monkeypatch.setattr(connection, "FIRST_PAUSE_SECONDS", 0.0)
    with run_scripted_server() as script:
        yield script
