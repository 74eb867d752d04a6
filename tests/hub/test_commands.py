"""The commands that take names of models, as processes and in this process."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from dragoman.command_line import main
from dragoman.hub.install import find_bundle, install
from dragoman.hub.names import HubError
from dragoman.hub.repository import Snapshot
from dragoman.hub.store import Installed, Store
from dragoman.serve.bundle.bundle import Bundle
from tests.hub.conftest import NAME, write_files
from tests.support.fake_hub import FakeHub
from tests.support.forked import ForkedPopen
from tests.support.paths import ROOT

Call = Callable[..., str]
OTHER = "Helsinki-NLP/opus-mt-de-en"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs a command and returns its standard output; a failed one ends with its message."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["dragoman", *arguments])
        main()
        return capfd.readouterr().out

    return run


def installed(name: str, key: str, model: str = "m") -> Installed:
    fields: dict[str, Any] = {
        "origin": "o",
        "license": "cc-by-nc-4.0",
        "directions": ("en-de",),
        "size_bytes": 2_000_000,
    }
    return Installed(name=name, model=model, key=key, **fields)


def keep(store: Store, record: Installed) -> Installed:
    """Writes a record and a folder for its bundle."""
    store.bundle(record.key).mkdir(parents=True, exist_ok=True)
    (store.bundle(record.key) / "manifest.json").write_text("{}")
    store.record(record)
    return record


def test_a_license_of_many_lines_is_one_line(hub: FakeHub, call: Call) -> None:
    hub.repositories[NAME].license = "a\nb\x1b[31m" * 1000
    lines = call("pull", NAME).splitlines()
    assert lines[0].startswith(f"{NAME}: license: a b?[31m")
    assert lines[1].startswith(f"{NAME}: downloads ")


def test_a_pull_shows_the_license_before_the_download(hub: FakeHub, call: Call) -> None:
    hub.repositories[NAME].license = "cc-by-nc-4.0"
    lines = call("pull", "en-de").splitlines()
    assert lines[0] == f"{NAME}: license: cc-by-nc-4.0; it forbids commercial use"
    assert lines[1].startswith(f"{NAME}: downloads ")
    assert "cc-by-nc-4.0 (not for commercial use)" in call("models")
    assert [row["directions"] for row in json.loads(call("models", "--json"))] == [["en-de"]]
    assert call("remove", "en-de") == "en-de: removed\n"
    assert "no model is installed" in call("models")


def test_a_folder_gets_complete_copies_that_need_no_cache(hub: FakeHub, store: Store, call: Call) -> None:
    target = store.folder.parent / "served"
    assert call("pull", "--to", str(target), "en-de").endswith(f"{target / 'opus-mt-en-de'}\n")
    (folder,) = target.iterdir()
    assert Bundle.open(folder).manifest.name == "opus-mt-en-de"
    before = folder.stat().st_ino
    call("pull", "--to", str(target), "en-de")
    assert folder.stat().st_ino == before, "an equal bundle stays"
    (folder / "manifest.json").write_text("{}")
    call("pull", "--to", str(target), "en-de")
    assert Bundle.open(folder).golden
    assert list(target.iterdir()) == [folder]
    assert hub.requests


@pytest.mark.parametrize("target", ["models", "elsewhere"])
def test_other_folders_are_never_replaced(target: str, checkpoint: dict[str, bytes], store: Store, call: Call) -> None:
    """Neither the checkpoint itself nor another folder of its name."""
    own, taken = (store.folder.parent / parent / "my-model" for parent in ("models", target))
    for folder in {own, taken}:
        write_files(folder, checkpoint)
    with pytest.raises(SystemExit, match=r"^dragoman pull: .*my-model: exists and has no manifest\.json: [^\n]*$"):
        call("pull", "--to", str(taken.parent), str(own))
    assert {path.name: path.read_bytes() for path in taken.iterdir()} == checkpoint
    assert list(taken.parent.iterdir()) == [taken]


@pytest.mark.usefixtures("fake_hub")
def test_the_catalog_is_listed(call: Call) -> None:
    lines = call("models", "--remote").splitlines()
    columns = ["pair", "model", "architecture", "license", "reason", "size", "chrf", "comet"]
    assert lines[0].split() == columns
    assert any(line.split()[:2] == ["en-de", NAME] for line in lines)


def add_models(hub: FakeHub) -> None:
    for pair, architecture, chrf in (("en-cs", "tiny", 50.1), ("cs-en", "base", 61.25), ("en-de", "tiny", 55.0)):
        hub.registry.add(
            pair, {"model.bin": b"model", "vocab.spm": b"vocabulary"}, architecture=architecture, chrf=chrf
        )
    hub.registry.add("en-cs", {"model.bin": bytes(25_000_000), "vocab.spm": b""}, architecture="base-memory", chrf=52.0)
    hub.registry.add("fi-cs", {"model.bin": b"", "vocab.spm": b""}, status="Nightly")


def test_the_models_of_a_language_are_listed_with_the_measurements_of_the_registry_and_the_reason(
    fake_hub: FakeHub, store: Store, call: Call
) -> None:
    add_models(fake_hub)
    lines = [re.split("  +", line) for line in call("models", "--language", "cs").splitlines()[1:]]
    best = "Firefox: base-memory (Release), best of 2: chrF++ 52.0 of flores200-plus"
    assert lines == [
        ["cs-en", "firefox:cs-en", "base", "MPL-2.0", "Firefox: base (Release)", "0 MB", "61.2", "0.6125"],
        ["en-cs", "firefox:en-cs", "base-memory", "MPL-2.0", best, "25 MB", "52.0", "0.5200"],
    ]
    (row, _) = json.loads(call("models", "--language", "cs", "--json"))
    assert (row["pair"], row["size_bytes"], row["chrf"], row["comet"]) == ("cs-en", 15, 61.25, 0.6125)
    text = call("models", "--remote")
    assert re.search(r"^en-de +firefox:en-de ", text, re.MULTILINE)
    assert re.search(r"^de-en +Helsinki-NLP/opus-mt-de-en .*OPUS-MT: no released one of Firefox", text, re.MULTILINE)
    assert store.installed() == []
    with pytest.raises(SystemExit, match=r"^dragoman models: qq: no pair of the catalog has this language, expected"):
        call("models", "--language", "qq")


def test_without_a_registry_the_list_is_shown_with_a_note(
    fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_FIREFOX_MODELS", f"{fake_hub.address}/elsewhere")
    monkeypatch.setattr(sys, "argv", ["dragoman", "models", "--remote"])
    main()
    output, errors = capsys.readouterr()
    assert NAME in output
    assert errors.startswith("dragoman models: without those of Firefox Translations: ")
    assert errors.count("\n") == 1


def test_all_pairs_of_a_language_are_pulled(
    fake_hub: FakeHub, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_models(fake_hub)
    record = keep(store, installed("firefox:cs-en", "key"))
    pulled: list[str] = []

    def pull(_: Store, name: str, *__: object, **___: object) -> Installed:
        pulled.append(name)
        return record

    monkeypatch.setattr("dragoman.hub.commands.install", pull)
    call("pull", "--all-of", "cs")
    assert pulled == ["cs-en", "en-cs"]
    with pytest.raises(SystemExit, match="qq: no pair of the catalog has this language"):
        call("pull", "--all-of", "qq")
    with pytest.raises(SystemExit, match=r"^dragoman pull: NAME, --all-of: expected a name or a language"):
        call("pull")


@pytest.mark.usefixtures("fake_hub")
def test_a_bundle_stays_until_its_last_name_is_removed(store: Store, call: Call) -> None:
    keep(store, installed("a/one", "key"))
    keep(store, installed("a/two", "key"))
    assert call("remove", "a/one") == "a/one: removed; another name keeps its bundle\n"
    assert store.bundle("key").exists()
    assert call("remove", "a/two") == "a/two: removed\n"
    assert not store.bundle("key").exists()
    with pytest.raises(SystemExit, match="not installed"):
        call("remove", "a/two")


def test_models_that_are_served_together_are_links_in_one_folder(store: Store) -> None:
    models = [keep(store, installed("a/one", "k1", "one")), keep(store, installed("a/two", "k2", "two"))]
    bundles = {model.model: store.bundle(model.key) for model in models}
    folder = store.link(bundles)
    assert store.link(bundles) == folder
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    assert (folder / "two").resolve() == store.bundle("k2").resolve()
    store.remove(models[0])
    assert not folder.exists()


def test_two_models_of_one_name_are_not_served_together(store: Store) -> None:
    keep(store, installed("a/one", "k1", "same"))
    keep(store, installed("b/one", "k2", "same"))
    with pytest.raises(HubError, match="another model has the name same too"):
        find_bundle(["a/one", "b/one"])


def test_a_record_without_its_bundle_or_of_another_version_is_not_installed(store: Store) -> None:
    store.record(installed("a/one", "k1"))
    keep(store, installed("a/two", "k2"))
    (store.folder / "names" / "damaged.json").write_text("{")
    assert [model.name for model in store.installed()] == ["a/two"]
    assert store.find("a/one") is None


def test_several_processes_convert_a_model_once(hub: FakeHub, store: Store) -> None:
    command = [sys.executable, "-c", f"from dragoman.hub.install import find_bundle; print(find_bundle(['{NAME}']))"]
    where: dict[str, Any] = {"env": {"DRAGOMAN_CACHE": str(store.folder), "HF_ENDPOINT": hub.address}}
    processes = [ForkedPopen(command, **where, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert sum("converts to a bundle" in output for output in outputs) == 1


@pytest.mark.usefixtures("hub")
def test_a_pull_by_another_name_waits_for_files_of_the_first_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both names have one commit and one folder; the first pull removes it."""
    other = f"{NAME}@main"
    fetch, pulls = Snapshot.fetch, [Thread(target=install, args=(store, name)) for name in (NAME, other)]
    fetching: list[int] = []
    most: list[int] = []

    def fetch_slowly(self: Snapshot, folder: Path) -> Path:
        fetching.append(0)
        most.append(len(fetching))
        time.sleep(0.2)
        fetched = fetch(self, folder)
        fetching.pop()
        return fetched

    monkeypatch.setattr(Snapshot, "fetch", fetch_slowly)
    for pull in pulls:
        pull.start()
    for pull in pulls:
        pull.join()
    assert most == [1, 1]
    assert [model.name for model in store.installed()] == [NAME, other]


def test_a_local_checkpoint_is_converted_once(
    checkpoint: dict[str, bytes], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_files(tmp_path / "my-model", checkpoint)
    bundle = find_bundle([str(folder)])
    monkeypatch.setattr("dragoman.hub.convert._write", None)
    assert find_bundle([str(folder)]) == bundle
    assert [model.name for model in store.installed()] == [str(folder)]


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_no_conversion_needs_pytorch(weights: str, checkpoint: dict[str, bytes], store: Store, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "my-model", checkpoint)
    if weights != "model.safetensors":
        torch.save(load_file(folder / "model.safetensors"), folder / weights)
        (folder / "model.safetensors").unlink()
    program = f"""
import sys
for name in ("torch", "transformers", "lightning", "onnxscript", "ctranslate2", "datasets", "pandas"):
    sys.modules[name] = None
from dragoman.hub.install import find_bundle
print(find_bundle([{str(folder)!r}]))
"""
    environment = {"PYTHONPATH": str(ROOT), "DRAGOMAN_CACHE": str(store.folder)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert Bundle.open(Path(result.stdout.splitlines()[-1])).golden


def test_a_bundle_is_served_as_it_is(bundle_path: Path, store: Store) -> None:
    assert find_bundle([str(bundle_path)]) == bundle_path
    assert find_bundle([str(bundle_path.parent)]) == bundle_path.parent
    assert not store.folder.exists()


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(HubError, match=r"empty: has no config\.json, \.npz or \.bin file"):
        install(store, str(tmp_path / "empty"))


def test_a_terminal_without_a_size_shows_the_progress(hub: FakeHub, store: Store) -> None:
    reader, terminal = os.openpty()
    environment = {"DRAGOMAN_CACHE": str(store.folder), "HF_ENDPOINT": hub.address}
    with os.fdopen(terminal, "wb", 0) as stream:
        command = [sys.executable, "-m", "dragoman", "pull", NAME]
        pull = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stream)
    shown = b""
    with os.fdopen(reader, "rb", 0) as progress, pull, suppress(OSError):  # Linux ends a terminal with an error
        while piece := progress.read(1 << 16):
            shown += piece
    assert pull.returncode == 0
    assert b"model.safetensors: 100%" in shown


@pytest.mark.parametrize(
    "arguments",
    [["pull", "en-de"], ["models"], ["remove", "en-de"], ["serve", "en-de"], ["translate", "--model", "en-de"]],
)
@pytest.mark.parametrize("below", ["", "below"])
def test_a_cache_that_is_a_file_is_one_line_with_its_path(
    arguments: list[str], below: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "file" / below))
    expected = f"^dragoman {arguments[0]}: {tmp_path / 'file'}: is a file, expected the folder of the cache: set DRAG"
    with pytest.raises(SystemExit, match=expected):
        call(*arguments)


@pytest.mark.usefixtures("hub")
def test_a_pull_into_a_file_is_one_line_with_its_path(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=rf"^dragoman pull: {tmp_path / 'file'}: is a file, expected a folder$"):
        call("pull", "--to", str(tmp_path / "file"), NAME)


def test_the_first_translation_with_a_name_writes_only_translations(hub: FakeHub, store: Store) -> None:
    command = [sys.executable, "-m", "dragoman", "translate", "--model", NAME]
    variables = {"DRAGOMAN_CACHE": str(store.folder), "HF_ENDPOINT": hub.address}
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with ForkedPopen(command, env=variables, text=True, **streams) as process:
        output, errors = process.communicate("bakoli\n")
    assert len(output.splitlines()) == 1
    assert f"{NAME}: license: " in errors


def test_a_translation_without_a_model_names_the_options(call: Call) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman translate: --model, --bundle, --server: expected one of them"):
        call("translate")


def test_settings_with_names_are_printed_without_a_download(fake_hub: FakeHub, call: Call) -> None:
    assert yaml.safe_load(call("serve", NAME, OTHER, "--print-config"))["bundle"] == NAME
    assert fake_hub.requests == []
