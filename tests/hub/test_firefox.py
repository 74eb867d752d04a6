"""Models of Firefox Translations from a registry on this machine: which one, how it gets here, and what stays."""

import gzip
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import command_line
from dragoman.export.source_model import Exportable
from dragoman.hub import connection, firefox
from dragoman.hub.firefox import find_student
from dragoman.hub.install import find_bundle, install
from dragoman.hub.names import FirefoxModel, HubError, parse_name
from dragoman.hub.progress import watched
from dragoman.hub.store import Store
from dragoman.model.run import RunFolder
from dragoman.serve.bundle.bundle import Bundle
from tests.hub.conftest import NAME, left, refusal
from tests.support.cases import cases
from tests.support.fake_hub import FakeHub
from tests.support.firefox_registry import REGISTRY_PATH, student_files
from tests.support.marian import make_texts, translate_words
from tests.support.marian_student import BIN_FILE, VOCABULARY_FILE
from tests.support.scripted_server import Answer, reply, run_scripted_server, silence, stall_after, trickle

CASES = cases(__file__)

PAIR = "firefox:en-de"


@pytest.fixture(scope="session")
def students(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, bytes]]:
    """Returns the files of a student, as `student_files`."""
    folder = tmp_path_factory.mktemp("students")
    return lambda **options: dict(student_files(folder, **options))


@pytest.fixture
def listed(fake_hub: FakeHub, students: Callable[..., dict[str, bytes]]) -> FakeHub:
    """A registry with one released model."""
    fake_hub.registry.add("en-de", students())
    return fake_hub


def packed(hub: FakeHub, name: str = BIN_FILE) -> str:
    """Returns the path of a packed file of the only record that has it."""
    (path,) = (path for path in hub.registry.files if path.endswith(f"/{name}.gz"))
    return path


def fetch(store: Store, name: str = PAIR) -> Path:
    """Downloads a model and converts nothing; returns the folder."""
    reference = parse_name(name)
    assert isinstance(reference, FirefoxModel)
    return find_student(store, reference).fetch(store.downloads(name))


def downloaded(store: Store) -> list[str]:
    return [name for name in left(store) if name.startswith("downloads") and "model" in name]


def asked(hub: FakeHub) -> list[str]:
    return [path.removeprefix("firefox/") for method, path, _ in hub.requests if method == "GET"]


def test_a_released_model_is_pulled_by_name_and_as_the_default_of_its_pair(listed: FakeHub, store: Store) -> None:
    installed = install(store, "en-de")
    assert (installed.name, installed.model) == (PAIR, "firefox-en-de")
    assert (installed.directions, installed.license) == (("en-de",), "MPL-2.0")
    assert installed == install(store, PAIR)
    assert {name.split("/")[0] for name in left(store)} == {"bundles", "names", "registries"}
    assert asked(listed)[0] == REGISTRY_PATH


def test_the_bundle_holds_license_makers_originals_and_shortlist(
    listed: FakeHub, store: Store, students: Callable[..., dict[str, bytes]]
) -> None:
    bundle = Bundle.open(store.bundle(install(store, PAIR).key))
    assert bundle.manifest.license == "MPL-2.0"
    assert bundle.golden
    shortlist = bundle.shortlist()
    assert shortlist is not None
    assert shortlist.candidates([3]).tolist() == [0, 1, 3, 21, 36]
    text = (bundle.folder / "README.md").read_text()
    for expected in (
        "license: MPL-2.0",
        "made by: Mozilla",
        "record: tiny (Release)",
        f"{listed.address}/firefox/{packed(listed)}",
        f"model.intgemm.bin: sha256 {hashlib.sha256(students()[BIN_FILE]).hexdigest()}",
    ):
        assert expected in text


def test_source_and_target_may_have_vocabularies_of_their_own(
    fake_hub: FakeHub, store: Store, students: Callable[..., dict[str, bytes]]
) -> None:
    fake_hub.registry.add("en-zh_hant", students(separate=True))
    installed = install(store, "firefox:en-zh_hant")
    assert (installed.model, installed.directions) == ("firefox-en-zh-Hant", ("en-zh-Hant",))


def test_the_best_of_several_released_models_by_the_measurement_of_the_registry_is_taken(
    fake_hub: FakeHub, store: Store, students: Callable[..., dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    for architecture, chrf, status in (
        ("base", 60.0, "Release"),
        ("base-memory", 61.5, "Release Desktop"),
        ("tiny", None, "Release Android"),
        ("base", 70.0, "Nightly"),
        ("enormous", 80.0, "Release"),
    ):
        fake_hub.registry.add("en-de", students(), architecture=architecture, chrf=chrf, status=status)
    chosen = [find_student(store, FirefoxModel("en", "de", choice)).choice for choice in (None, "tiny", "nightly")]
    assert chosen == [
        "base-memory (Release Desktop), best of 3: chrF++ 61.5 of flores200-plus",
        "tiny (Release Android)",
        "base (Nightly)",
    ]
    fetch(store)
    assert f"{PAIR}: {chosen[0]}: downloads " in capsys.readouterr().out


@pytest.mark.parametrize(("record", "name", "problem"), CASES["other statuses and architectures are refused by name"])
def test_other_statuses_and_architectures_are_refused_by_name(
    record: dict[str, Any], name: str, problem: str, fake_hub: FakeHub, store: Store
) -> None:
    fake_hub.registry.add("en-de", {BIN_FILE: b"", VOCABULARY_FILE: b""}, **record)
    assert problem in refusal(store, name)
    assert asked(fake_hub) == [REGISTRY_PATH]


def test_a_model_without_a_release_is_pulled_by_its_status(
    fake_hub: FakeHub, store: Store, students: Callable[..., dict[str, bytes]]
) -> None:
    fake_hub.registry.add("en-de", students(), status=None)
    assert fetch(store, f"{PAIR}@unreleased").is_dir()


def test_a_pair_without_a_released_model_gets_the_one_of_the_list(hub: FakeHub, store: Store) -> None:
    hub.registry.add("en-de", {BIN_FILE: b"", VOCABULARY_FILE: b""}, status="Nightly")
    assert install(store, "en-de").name == NAME


def test_a_pair_that_nothing_has_is_refused(fake_hub: FakeHub, store: Store) -> None:
    assert f"argos:qq-zz: {fake_hub.address}/argos/index.json has no package for these languages" in refusal(
        store, "qq-zz"
    )


def test_without_a_registry_a_pair_gets_the_model_of_the_list(
    hub: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(firefox.VARIABLE, f"{hub.address}/elsewhere")
    assert "answers with status 404" in refusal(store, "en-bg")
    assert install(store, "en-de").name == NAME
    assert f"check the network and {firefox.VARIABLE}" in (told := capsys.readouterr().out)
    assert f"{NAME} is used instead" in told


def test_a_change_of_the_registry_changes_no_installed_pair_until_it_is_pulled(
    listed: FakeHub, store: Store, students: Callable[..., dict[str, bytes]]
) -> None:
    first = find_bundle(["en-de"])
    better = listed.registry.add("en-de", students(seed=4), architecture="base", chrf=60.0)
    listed.requests.clear()
    assert find_bundle(["en-de"]) == find_bundle([PAIR]) == first
    assert listed.requests == []
    updated = install(store, "en-de", update=True)
    assert better["files"]["model"]["path"] in updated.origin
    assert store.bundle(updated.key) != first
    listed.registry.records.clear()
    with pytest.raises(HubError, match="has no model for these languages"):
        install(store, "en-de", update=True)
    assert find_bundle(["en-de"]) == store.bundle(updated.key)


def test_an_equal_registry_is_not_sent_again(listed: FakeHub, store: Store) -> None:
    install(store, PAIR)
    copy = next((store.folder / "registries").iterdir())
    before = copy.read_bytes()
    listed.requests.clear()
    assert install(store, PAIR, update=True)
    assert asked(listed) == [REGISTRY_PATH]
    assert copy.read_bytes() == before


OTHER_FORMS = [
    b"{",
    b"[]",
    b"{}",
    b'{"baseUrl": "ftp://x", "models": {}}',
    b'{"baseUrl": "http://x", "models": {"a": [{}]}}',
]


WRONG = [
    *(reply(content) for content in OTHER_FORMS),
    reply(status=404),
    reply(status=429, retry_after="7"),
    reply(b"<html>", content_type="text/html"),
]
LATE = [silence, stall_after(b"{", 100), trickle(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.02)]


@pytest.mark.parametrize("answer", [*WRONG, *LATE])
def test_the_last_good_copy_of_the_registry_is_used_instead_of_a_wrong_late_or_missing_one(
    answer: Answer, listed: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A busy machine may end the wait for a late answer before the request has left."""
    monkeypatch.setattr(firefox, "REGISTRY_SECONDS", 60.0)
    with run_scripted_server() as server:
        monkeypatch.setenv(firefox.VARIABLE, server.address)
        good = listed.registry.document("http://127.0.0.1:9/files")
        server.answers[:] = [reply(good, etag='"1"'), answer]
        assert firefox.read_registry(store, "a").models
        if answer in LATE:
            monkeypatch.setattr(firefox, "REGISTRY_SECONDS", 0.3)
        assert firefox.read_registry(store, "a").models
        assert "UTC is used" in (line := capsys.readouterr().out)
        assert line.startswith("a: ")
        assert line.count("\n") == 1
        assert answer in LATE or server.headers[1]["if-none-match"] == '"1"'
        shutil.rmtree(store.folder)
        assert refusal(store, PAIR).startswith(f"{PAIR}: ")
        assert answer in LATE or len(server.requests) == 3


def test_a_damaged_copy_is_replaced(listed: FakeHub, store: Store) -> None:
    firefox.read_registry(store, "a")
    copy = next((store.folder / "registries").iterdir())
    good = copy.read_bytes()
    copy.write_bytes(b"damaged")
    assert firefox.read_registry(store, "a").models
    assert copy.read_bytes() == good
    assert asked(listed) == [REGISTRY_PATH] * 2


def test_files_come_from_the_address_that_the_registry_states(
    listed: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(firefox.VARIABLE)
    monkeypatch.setattr(firefox, "ADDRESS", f"{listed.address}/firefox")
    assert find_student(store, FirefoxModel("en", "de")).origin.startswith(f"{listed.address}/firefox/models/en-de/")


def test_a_wrong_hash_is_refused_and_removed(
    listed: FakeHub, store: Store, students: Callable[..., dict[str, bytes]]
) -> None:
    good = listed.registry.files[packed(listed)]
    listed.registry.files[packed(listed)] = gzip.compress(students()[BIN_FILE][:-1] + b"x")
    assert "model.intgemm.bin: sha256 is " in refusal(store, PAIR)
    assert downloaded(store) == []
    listed.registry.files[packed(listed)] = good
    assert sorted(path.name for path in fetch(store).iterdir()) == ["lex.s2t.bin", "model.intgemm.bin", "vocab.spm"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(b"") * 50_000, "sends more bytes, expected at most "),
        (gzip.compress(bytes(1_000_000), mtime=0), "sends more bytes, expected "),
        (gzip.compress(b"short", mtime=0), "sends 5 bytes, expected "),
        (b"no gzip", "no file of gzip"),
        (gzip.compress(b"cut", mtime=0)[:-4], "no file of gzip"),
        (gzip.compress(b"damaged", mtime=0)[:-1] + b"x", "no file of gzip"),
        (b"", "no file of gzip"),
    ],
)
def test_other_content_than_stated_is_refused_within_the_stated_size_and_removed(
    content: bytes, problem: str, listed: FakeHub, store: Store
) -> None:
    listed.registry.files[packed(listed)] = content
    assert problem in refusal(store, PAIR)
    assert downloaded(store) == []


def test_a_file_that_unpacks_without_end_takes_no_more_space_than_stated(
    listed: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    stated = listed.registry.records[0]["files"]["model"]["uncompressedSize"]
    listed.registry.files[packed(listed)] = gzip.compress(bytes(50_000_000), 9)
    unlink = Path.unlink

    def measure(path: Path, *, missing_ok: bool = False) -> None:
        sizes.append(path.stat().st_size if path.exists() else 0)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", measure)
    assert "sends more bytes, expected " in refusal(store, PAIR)
    assert max(sizes) == stated + 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        *CASES["a record that states what cannot be is refused before a download"],
        ({"uncompressedSize": 1 << 50}, "states a size of "),
        ({"uncompressedSize": 1 << 39}, "MB for download and conversion"),
    ],
)
def test_a_record_that_states_what_cannot_be_is_refused_before_a_download(
    change: dict[str, object], problem: str, listed: FakeHub, store: Store
) -> None:
    listed.registry.records[0]["files"]["model"] |= change
    assert problem in refusal(store, PAIR)
    assert asked(listed) == [REGISTRY_PATH]


@pytest.mark.parametrize("role", ["model", "vocab"])
def test_a_record_without_a_file_that_the_conversion_needs_is_refused(role: str, listed: FakeHub, store: Store) -> None:
    del listed.registry.records[0]["files"][role]
    assert "expected model and vocab, or srcVocab and trgVocab" in refusal(store, PAIR)


def test_the_progress_of_a_packed_file_grows_while_it_arrives(
    listed: FakeHub, store: Store, monkeypatch: pytest.MonkeyPatch, students: Callable[..., dict[str, bytes]]
) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.5)
    listed.stalls.append(100_000)
    seen: list[tuple[int, int | None]] = []
    with watched(lambda *sizes: seen.append(sizes)):
        fetch(store)
    assert any(80_000 < done < len(students()[BIN_FILE]) for done, _ in seen)
    total = sum(map(len, students().values()))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


@pytest.mark.parametrize("streams", [1, 3])
def test_a_resumed_download_of_a_packed_file_is_unpacked(streams: int, listed: FakeHub, store: Store) -> None:
    """A file of gzip may have several streams, and zeros at the end."""
    content = gzip.decompress(listed.registry.files[packed(listed)])
    size = -(-len(content) // streams)
    parts = [gzip.compress(content[start : start + size]) for start in range(0, len(content), size)]
    listed.registry.files[packed(listed)] = b"".join(parts) + bytes(99)
    listed.interruptions += [12_345, 10_000, 11_111]
    folder = fetch(store)
    assert (folder / "model.intgemm.bin").read_bytes() == content
    assert [given for method, path, given in listed.requests if path.endswith(packed(listed))][1:] == [
        "bytes=12345-",
        "bytes=22345-",
        "bytes=33456-",
    ]


def test_offline_the_copy_of_the_registry_updates_nothing(
    listed: FakeHub, store: Store, students: Callable[..., dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install(store, "en-de")
    listed.registry.add("en-de", students(seed=4), chrf=60.0)
    firefox.read_registry(store, "a")
    listed.requests.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert install(store, "en-de", update=True) == install(store, PAIR, update=True) == installed
    assert "HF_HUB_OFFLINE is set" in refusal(store, f"{PAIR}@tiny")
    assert listed.requests == []


def test_a_named_model_is_downloaded_once_and_trained_further(listed: FakeHub, tmp_path: Path) -> None:
    """A resumed run reads the files in its folder, but not those of another name; the bundle has the license."""
    table = tmp_path / "pairs.en-de.tsv"
    table.write_text("".join(f"{text}\t{translate_words(text)}\n" for text in make_texts(9, 40)))
    run = tmp_path / "run"
    command = ["--initial", PAIR, "--data", f"tsv:{table}", "--training.max-steps=0", "--out", str(run)]
    command_line.run("train", command)
    listed.registry.files.clear()
    command_line.run("train", command)
    trained = RunFolder(run).load()
    assert trained.tokenizer.source_pieces[0] == "</s>"
    assert Exportable.of_run(trained).license == firefox.LICENSE
    with pytest.raises(SystemExit, match=r"^dragoman train: firefox:en-de@tiny"):
        command_line.run("train", [*command[:1], f"{PAIR}@tiny", *command[2:]])
    with pytest.raises(SystemExit, match=r"^dragoman train: argos:en-de: cannot be trained further, expected"):
        command_line.run("train", [*command[:1], "argos:en-de", *command[2:]])
