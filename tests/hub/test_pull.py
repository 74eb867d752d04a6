"""Pulls from a hub on this machine: what is downloaded, what is kept, and what each failure leaves behind."""

import errno
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import huggingface_hub.constants
import pytest
from ctranslate2.converters import TransformersConverter

from dragoman.hub import connection, download
from dragoman.hub.install import install
from dragoman.hub.names import Languages
from dragoman.hub.store import Store
from dragoman.library.aio import find_models
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.local.errors import ModelError
from tests.hub.conftest import NAME, left, pulled_files, refusal, write_files
from tests.support.fake_hub import MIN_LFS_BYTES, TOKEN, FakeHub, Repository
from tests.support.forked import ForkedPopen
from tests.support.hub_program import ARGOS, argos_package
from tests.support.multilingual import write_mbart50, write_nllb
from tests.support.scripted_server import reply, run_scripted_server
from tests.support.t5 import MADLAD_LANGUAGES, write_t5

WEIGHTS = "model.safetensors"


def test_a_pull_downloads_only_what_the_conversion_reads_and_keeps_only_the_bundle(hub: FakeHub, store: Store) -> None:
    installed = install(store, NAME)
    files = pulled_files(hub)
    assert files[0] == "config.json"
    assert files[-1] == WEIGHTS
    assert sorted(files) == sorted(set(files))
    assert not {"tf_model.h5", "README.md"} & set(files)
    bundle = Bundle.open(store.bundle(installed.key))
    assert (bundle.manifest.name, bundle.manifest.precision) == ("opus-mt-en-de", "int8")
    assert installed.directions == ("en-de",)
    assert bundle.golden
    assert {name.split("/")[0] for name in left(store)} == {"bundles", "names"}


def test_a_program_finds_the_size_of_a_download_on_standard_error_and_has_none_offline(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError, match=f"{NAME}: not installed, expected an installed model offline"):
        find_models([NAME], offline=True)
    assert hub.requests == []
    folder = find_models([NAME], offline=False)
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.search(rf"^{NAME}: downloads [0-9,]+ MB from {NAME}@", errors, re.MULTILINE)
    hub.requests.clear()
    assert find_models(["en-de"], offline=True) == folder
    assert hub.requests == []


def test_offline_updates_keep_the_installed_model(hub: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = install(store, NAME)
    hub.requests.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert install(store, NAME, update=True) == installed
    assert hub.requests == []


@pytest.mark.parametrize("name", [NAME, "argos:en-de"])
def test_offline_nothing_is_asked(name: str, hub: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent model is refused with what to do."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal(store, name)
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
def test_without_a_network_one_line_names_the_missing_model_and_how_to_bring_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("DRAGOMAN_FIREFOX_MODELS", "http://127.0.0.1:9")
    for name in (NAME, "en-de", "firefox:en-de"):
        told = refusal(store, name)
        assert told.startswith(f"{name}: not installed, and no connection: ConnectError")
        assert f"`dragoman pull --to FOLDER {name}` there, `dragoman serve FOLDER` here" in told
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("answer", [{}, [], {"sha": "../x"}, {"sha": "a", "siblings": [{}]}, {"sha": 5}, None])
def test_an_answer_of_another_form_is_refused(answer: object, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_scripted_server() as server:
        server.answers.append(reply(json.dumps(answer).encode()))
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
        assert "expected JSON as of a hub: " in refusal(store)


def test_a_damaged_package_is_downloaded_again(fake_hub: FakeHub, store: Store) -> None:
    fake_hub.packages["translate-en_de-1_0.argosmodel"] = b"no package"
    refusal(store, "argos:en-de")
    assert not [name for name in left(store) if name.startswith("downloads")]


def test_a_pinned_revision_is_pulled_and_stays(hub: FakeHub, store: Store, checkpoint: dict[str, bytes]) -> None:
    repository = hub.repositories[NAME]
    (first,) = repository.commits
    second = repository.commit(checkpoint | {"generation_config.json": b"{}"})
    pinned, newest = install(store, f"{NAME}@{first}"), install(store, NAME)
    assert (pinned.origin, newest.origin) == (f"{NAME}@{first}", f"{NAME}@{second}")
    assert pinned.key != newest.key
    assert "no such revision" in refusal(store, f"{NAME}@{'0' * 40}")


def test_a_pull_updates_and_converts_no_equal_bundle(hub: FakeHub, store: Store, checkpoint: dict[str, bytes]) -> None:
    first = install(store, NAME)
    created = (store.bundle(first.key) / "manifest.json").stat().st_mtime_ns
    newer = hub.repositories[NAME].commit(checkpoint | {"README.md": b"Another text."})
    assert install(store, NAME) == first
    updated = install(store, NAME, update=True)
    assert (updated.origin, updated.key) == (f"{NAME}@{newer}", first.key)
    assert (store.bundle(first.key) / "manifest.json").stat().st_mtime_ns == created


def test_the_next_pull_continues_an_interrupted_one(hub: FakeHub, store: Store, checkpoint: dict[str, bytes]) -> None:
    """Ctrl-C ends the command with status 130 and one line that states that the download continues."""
    hub.stalls.append(12_345)
    environment = {"DRAGOMAN_CACHE": str(store.folder), "HF_ENDPOINT": hub.address}
    command = [sys.executable, "-m", "dragoman", "pull", NAME]
    with ForkedPopen(command, env=environment, stderr=subprocess.PIPE, text=True) as pull:
        while hub.stalls or not any(part.stat().st_size for part in store.folder.glob("downloads/*/*.part")):
            assert pull.poll() is None
            time.sleep(0.01)
        pull.send_signal(signal.SIGINT)
        _, errors = pull.communicate()
    assert pull.returncode == 130
    assert errors.count("\n") == 1
    assert f"{NAME}: interrupted, " in errors
    assert "the same command continues the download" in errors
    assert store.installed() == []
    (part,) = (name for name in left(store) if name.endswith(".part"))
    name = Path(part).name.removesuffix(".part")
    hub.requests.clear()
    installed = install(store, NAME)
    assert [given for _, path, given in hub.requests if path.startswith("lfs/") and given] == ["bytes=12345-"]
    assert len(checkpoint[name]) >= MIN_LFS_BYTES
    assert Bundle.open(store.bundle(installed.key)).golden
    assert not [item for item in left(store) if item.startswith("downloads")]


def test_a_file_with_a_wrong_hash_is_refused_and_removed(hub: FakeHub, store: Store) -> None:
    """Shards show the same of large files, which have another hash."""
    hub.damaged.add("config.json")
    assert "config.json: sha1 is " in refusal(store)
    assert not [name for name in left(store) if Path(name).name.startswith("config.json")]
    hub.damaged.clear()
    assert install(store, NAME).directions == ("en-de",)


def test_a_listed_file_that_is_missing_is_named(hub: FakeHub, store: Store) -> None:
    hub.lost.add("vocab.json")
    assert "vocab.json: choose another revision" in refusal(store)


def test_gated_models_need_a_token(hub: FakeHub, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories[NAME].gated = True
    assert f"gated: accept its conditions on {hub.address}/{NAME}, then set HF_TOKEN" in refusal(store)
    with monkeypatch.context() as patch:
        patch.setenv("HF_TOKEN", TOKEN)
        assert install(store, NAME).directions == ("en-de",)
    # `hf auth login` stores the token so in HF_HOME.
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    hub.requests.clear()
    assert install(store, NAME, update=True).directions == ("en-de",)
    assert hub.requests


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["nobody/nothing", "bundles/absent"])
def test_an_unknown_repository_is_refused(name: str, store: Store) -> None:
    assert "neither a folder here nor a repository of the hub" in refusal(store, name)


def test_another_model_is_refused_before_its_weights(hub: FakeHub, store: Store, checkpoint: dict[str, bytes]) -> None:
    hub.repositories["a/gpt"] = repository = Repository()
    repository.commit(checkpoint | {"config.json": b'{"model_type": "gpt2"}'})
    assert 'model_type: "gpt2": expected a Marian checkpoint' in refusal(store, "a/gpt")
    assert pulled_files(hub) == ["config.json"]
    hub.repositories["a/data"] = other = Repository()
    other.commit({"data.csv": b"1,2"})
    assert "a/data: has no file config.json" in refusal(store, "a/data")


@pytest.mark.usefixtures("hub")
def test_a_disk_that_becomes_full_leaves_nothing_and_states_needed_and_free_space(
    store: Store, checkpoint: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = connection.receive

    async def fill(access: Any, response: Any, take: Callable[[bytes], None]) -> None:
        await receive(access, response, take)
        if "/lfs/" in str(response.url):
            raise OSError(errno.ENOSPC, "No space left on device")

    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=138_000_000))
    monkeypatch.setattr(download, "receive", fill)
    names = {"vocab.json", "source.spm", "target.spm", WEIGHTS, "generation_config.json", "tokenizer_config.json"}
    needed = 2 * sum(len(content) for name, content in checkpoint.items() if name in names)
    expected = f"the disk is full: needs {needed / 1e6:,.0f} MB for download and conversion, 138 MB are free: remove"
    assert expected in refusal(store)
    assert not [name for name in left(store) if name.endswith(".part")]
    assert store.installed() == []


def test_a_canceled_conversion_leaves_no_bundle(hub: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dragoman.export.make_bundle.write_tokenizer", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            install(store, NAME)
    assert not [name for name in left(store) if name.startswith(("bundles", "names"))]
    hub.requests.clear()
    install(store, NAME)
    assert pulled_files(hub) == []


@pytest.fixture(scope="module")
def ctranslate2_model(checkpoint: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint as CTranslate2 converts it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("ct2")
    written = write_files(folder / "marian", checkpoint)
    converter = TransformersConverter(str(written), copy_files=["source.spm", "target.spm"])
    return Path(converter.convert(str(folder / "model")))


def test_a_ctranslate2_model_of_the_hub_is_pulled_with_the_languages_in_its_name(
    fake_hub: FakeHub, store: Store, ctranslate2_model: Path
) -> None:
    fake_hub.repositories["someone/opus-mt-en-de-ct2"] = repository = Repository()
    repository.commit({path.name: path.read_bytes() for path in ctranslate2_model.iterdir()})
    installed = install(store, "ct2:someone/opus-mt-en-de-ct2")
    assert (installed.directions, installed.model) == (("en-de",), "opus-mt-en-de-ct2")
    assert install(store, "ct2:someone/opus-mt-en-de-ct2@main", Languages("cs", "fr")).directions == ("cs-fr",)


def test_an_argos_package_with_a_name_that_no_disk_takes_is_refused(fake_hub: FakeHub, store: Store) -> None:
    fake_hub.packages[f"translate-en_de-1_{'0' * 300}.argosmodel"] = b"no package"
    assert "at most 60 characters" in refusal(store, "argos:en-de")


def test_an_argos_package_is_pulled(fake_hub: FakeHub, store: Store, tmp_path: Path) -> None:
    fake_hub.packages[ARGOS] = argos_package(tmp_path / "argos").read_bytes()
    installed = install(store, "argos:en-de")
    assert (installed.model, installed.directions, installed.license) == ("argos-en-de", ("en-de",), None)
    assert not [name for name in left(store) if name.startswith("downloads")]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (write_nllb, (202, "sentencepiece.bpe.model")),
        (write_mbart50, (52, "sentencepiece.bpe.model")),
        (lambda folder: write_t5(folder, "madlad"), (len(MADLAD_LANGUAGES), "spiece.model")),
    ],
)
def test_a_multilingual_model_is_pulled_with_all_its_languages(
    write: Callable[[Path], Any], expected: tuple[int, str], fake_hub: FakeHub, store: Store, tmp_path: Path
) -> None:
    languages, tokenizer = expected
    write(tmp_path / "m")
    repository = Repository()
    repository.commit({path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()})
    fake_hub.repositories["facebook/many"] = repository
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.export.imports.common.USUAL_MAX_TOKENS", 20)
        installed = install(store, "facebook/many")
    assert installed.directions == (f"any two of {languages} languages",)
    assert tokenizer in pulled_files(fake_hub)
    assert Bundle.open(store.bundle(installed.key)).golden
