"""Checkpoints in shards are pulled: the shards that the index names, and no others."""

from pathlib import Path

import pytest

from dragoman.hub.convert import ModelFiles, convert
from dragoman.hub.install import install
from dragoman.hub.names import Languages
from dragoman.hub.store import Store
from dragoman.serve.bundle.bundle import Bundle
from tests.hub.conftest import NAME, left, pulled_files, refusal, write_files
from tests.support.fake_hub import FakeHub
from tests.support.shards import INDEX, PICKLED_INDEX, split_checkpoint, write_index

OTHERS = {"model-00004-of-00004.safetensors": bytes(50_000), "other/model.safetensors": bytes(50_000)}


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(checkpoint: dict[str, bytes], tmp_path: Path) -> Path:
    split_checkpoint(write_files(tmp_path / "m", checkpoint))
    return tmp_path / "m"


@pytest.fixture
def shards(folder: Path, hub: FakeHub) -> list[str]:
    """The shards of the newest commit, which has other files too."""
    hub.repositories[NAME].commit(read(folder) | OTHERS)
    return sorted(path.name for path in folder.glob("*.safetensors"))


def test_only_the_shards_of_the_index_are_pulled(
    hub: FakeHub, store: Store, shards: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    installed = install(store, NAME)
    files = pulled_files(hub)
    assert files[:2] == ["config.json", INDEX]
    assert sorted(name for name in files if name.endswith(".safetensors")) == shards
    (commit,) = (content for content in hub.repositories[NAME].commits.values() if INDEX in content)
    assert f"downloads {sum(len(commit[name]) for name in files) / 1e6:,.0f} MB from" in capsys.readouterr().out
    assert Bundle.open(store.bundle(installed.key)).golden
    assert {name.split("/")[0] for name in left(store)} == {"bundles", "names"}


def test_pickled_shards_are_pulled(hub: FakeHub, store: Store, checkpoint: dict[str, bytes], tmp_path: Path) -> None:
    shards = split_checkpoint(write_files(tmp_path / "m", checkpoint), PICKLED_INDEX)
    hub.repositories[NAME].commit(read(tmp_path / "m"))
    install(store, NAME)
    assert sorted(name for name in pulled_files(hub) if name.endswith(".bin")) == shards


def test_a_shard_that_the_hub_lacks_is_refused_before_the_weights(hub: FakeHub, store: Store, folder: Path) -> None:
    files = read(folder)
    lost = max(name for name in files if name.endswith(".safetensors"))
    hub.repositories[NAME].commit({name: content for name, content in files.items() if name != lost})
    assert f"has no file {lost}, which {INDEX} names: choose another revision" in refusal(store)
    assert pulled_files(hub) == ["config.json", INDEX]


@pytest.mark.parametrize("name", ["../names/x.safetensors", "/x.safetensors", "other/model.safetensors"])
def test_an_index_of_files_elsewhere_is_refused_at_once(name: str, hub: FakeHub, store: Store, folder: Path) -> None:
    write_index(folder / INDEX, [("a", name)])
    hub.repositories[NAME].commit(read(folder) | OTHERS)
    assert f"{INDEX}: weight_map: a: '{name}': expected a file *.safetensors next to the index" in refusal(store)
    assert pulled_files(hub) == ["config.json", INDEX]
    assert not [path for path in left(store) if "x.safetensors" in path]


def test_a_damaged_shard_is_removed_and_no_other_is_pulled_again(hub: FakeHub, store: Store, shards: list[str]) -> None:
    # The largest shard comes last.
    files = list(hub.repositories[NAME].commits.values())[-1]
    damaged = max(shards, key=lambda name: len(files[name]))
    hub.damaged.add(damaged)
    assert f"{damaged}: sha256 is " in refusal(store)
    assert not [name for name in left(store) if Path(name).name.startswith(damaged)]
    hub.damaged.clear()
    hub.requests.clear()
    install(store, NAME)
    assert [name for name in pulled_files(hub) if name in shards] == [damaged]


def test_another_shard_makes_another_bundle(store: Store, folder: Path) -> None:
    source = ModelFiles(folder, "m", Languages())
    key, _ = convert(store, source)
    assert convert(store, source)[0] == key
    path = max(folder.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert convert(store, source)[0] != key
