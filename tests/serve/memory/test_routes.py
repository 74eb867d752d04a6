"""Memories and corrections over REST and LibreTranslate's /suggest, and as the operator's commands."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from dragoman import command_line
from dragoman.protos import translation_pb2 as messages
from tests.support.live import LiveService, run_service

KEYS = "owner name=owner\nother name=other\nteam name=team approve=true\n"
QUERY = {"source_language": "en", "target_language": "de"}
LOGGED = re.compile(r'"event"|^\[(info|warning|error) ')
SHARED = {**QUERY, "shared": "true"}
CORRECTION = {**QUERY, "source": "gamma delta.", "target": "Gamma.", "translation": "Delta."}
TMX = """<tmx version="1.4"><body><tu>
<tuv xml:lang="en"><seg>one 2</seg></tuv><tuv xml:lang="de"><seg>eins 2</seg></tuv></tu></body></tmx>"""


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    (folder / "keys").write_text(KEYS)
    return folder


@pytest.fixture(scope="module")
def served(bundle_path: Path, state_dir: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=state_dir, api_keys_file=state_dir / "keys", corrections=True) as live:
        yield live


@pytest.fixture
def ask(served: LiveService) -> Iterator[Callable[..., httpx.Response]]:
    with served.http() as client:

        def send(key: str, method: str, path: str, **options: Any) -> httpx.Response:
            return client.request(method, f"/v1/{path}", headers={"authorization": f"Bearer {key}"}, **options)

        yield send


Ask = Callable[..., httpx.Response]


def test_a_memory_is_filled_listed_exported_and_deleted(ask: Ask) -> None:
    path = "memories/own/entries"
    assert ask("owner", "POST", path, content=TMX, params={**QUERY, "format": "tmx"}).json() == {"added": 1}
    assert ask("owner", "POST", path, content="two\tzwei\tmenu\none 2\teins 2\n", params=QUERY).json() == {"added": 1}
    (memory,) = ask("owner", "GET", "memories").json()["memories"]
    assert (memory["name"], memory["shared"], memory["entry_count"], memory["version"]) == ("own", False, 2, 2)
    first, second = ask("owner", "GET", path).json()["entries"]
    assert (first["source"], second["context"], second["origin"]) == ("one 2", "menu", "import")
    assert ask("owner", "GET", path, params={"after": first["id"]}).json() == {"entries": [second]}
    parts = {
        "tmx": "<seg>eins 2</seg>",
        "tsv": "two\tzwei\tmenu",
        "po": 'msgstr "zwei"',
        "xliff": "<target>zwei</target>",
    }
    for name, part in parts.items():
        exported = ask("owner", "GET", path, params={**QUERY, "format": name})
        assert (exported.status_code, part in exported.text) == (200, True)
        again = {"content": exported.content, "params": {**QUERY, "format": name}}
        assert ask("owner", "POST", path, **again).json() == {"added": 0}
    assert ask("owner", "DELETE", path, params={"author": first["author"], "origin": "correction"}).json() == {
        "deleted": 0
    }
    assert ask("owner", "DELETE", path, params={"before_seconds": 1}).json() == {"deleted": 0}
    assert ask("owner", "DELETE", "memories/own").json() == {"deleted": 2}
    assert ask("owner", "GET", path).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "options", "expected"),
    [
        ("POST", "memories/a/entries", {"content": "a\tb", "params": {**QUERY, "format": "doc"}}, (400, "format")),
        ("POST", "memories/a/entries", {"content": "a", "params": QUERY}, (400, "body")),
        ("POST", "memories/a/entries", {"content": "a\tb", "params": {}}, (400, "source_language")),
        ("POST", "memories/a/entries", {"content": "a\tb", "params": SHARED}, (403, None)),
        ("GET", "memories/a/entries", {}, (404, "memory")),
        ("GET", "memories/a/entries", {"params": {"after": "x"}}, (400, "after")),
        ("GET", "memories/a/entries", {"params": {"after": 1 << 31}}, (400, "after")),
        ("GET", "memories/a/entries", {"params": {"origin": "\0"}}, (400, "origin")),
        ("GET", "memories/a/entries", {"params": {"format": "tmx"}}, (400, "source_language")),
        ("POST", "corrections", {"json": {**CORRECTION, "target": " "}}, (400, "target")),
        ("POST", "corrections", {"json": {**CORRECTION, "memory": "a" * 65}}, (400, "memory")),
        ("POST", "corrections/1/approve", {}, (403, None)),
        ("GET", "corrections/terms", {}, (403, None)),
        ("DELETE", "corrections/77", {}, (404, "memory")),
    ],
)
def test_what_is_invalid_or_forbidden_is_refused(
    ask: Ask, method: str, path: str, options: dict[str, Any], expected: tuple[int, str | None]
) -> None:
    refused = ask("owner", method, path, **options)
    assert (refused.status_code, refused.json().get("field")) == expected, refused.text


def test_a_correction_counts_once_it_is_approved(ask: Ask) -> None:
    translation = {"text": "gamma delta.", "memory": "corrections"}
    number = ask("other", "POST", "corrections", json=CORRECTION).json()["id"]
    assert ask("owner", "GET", "corrections").json() == {"corrections": []}
    (waiting,) = ask("team", "GET", "corrections").json()["corrections"]
    assert (waiting["id"], waiting["translation"], waiting["memory"]) == (number, "Delta.", "corrections")
    before = ask("other", "POST", "translate", json=translation).json()["translations"][0]
    assert "origin" not in before
    assert ask("team", "POST", f"corrections/{number}/approve").json() == {"approved": 1}
    after = ask("owner", "POST", "translate", json=translation).json()["translations"][0]
    assert (after["text"], after["origin"]) == ("Gamma.", "memory")
    other = ask("other", "POST", "corrections", json=CORRECTION).json()["id"]
    assert ask("team", "GET", "corrections/terms").json() == {"terms": []}
    assert ask("other", "DELETE", f"corrections/{other}").json() == {"deleted": 1}


def test_grpc_takes_corrections(served: LiveService, ask: Ask) -> None:
    sent = messages.CorrectRequest(**CORRECTION, context="menu", memory="own")

    def correct(message: messages.CorrectRequest) -> int:
        with served.grpc_channel() as channel:
            path = "/dragoman.v1.TranslationService/Correct"
            method: Any = channel.unary_unary(path, response_deserializer=messages.CorrectResponse.FromString)
            return int(method(message.SerializeToString(), metadata=[("authorization", "Bearer other")]).id)

    number = correct(sent)
    (waiting,) = ask("other", "GET", "corrections").json()["corrections"]
    assert [waiting[name] for name in ("id", "target", "context", "memory")] == [number, "Gamma.", "menu", "own"]
    assert ask("team", "DELETE", f"corrections/{number}").json() == {"deleted": 1}
    with pytest.raises(grpc.RpcError, match="target: 0 characters"):
        correct(messages.CorrectRequest(source="a", source_language="en", target_language="de"))


@pytest.mark.parametrize("source", ["en", "auto"])
def test_a_suggestion_of_libretranslate_is_a_correction(served: LiveService, ask: Ask, source: str) -> None:
    body = {
        "q": "The house is old and the garden is beautiful.",
        "s": "Alpha.",
        "source": source,
        "target": "DE",
        "api_key": "other",
    }
    assert served.post(body, path="/suggest").json() == {"success": True}
    (waiting,) = ask("team", "GET", "corrections").json()["corrections"]
    shown = [waiting[name] for name in ("source", "target", "source_language", "target_language")]
    assert shown == [body["q"], "Alpha.", "en", "de"]
    ask("team", "DELETE", f"corrections/{waiting['id']}")
    assert served.post({**body, "s": ""}, path="/suggest").json() == {"error": "Invalid request: missing s parameter"}
    long = served.post({**body, "s": "a" * 10_001}, path="/suggest")
    assert long.json() == {"error": "Invalid request: request (10001) exceeds text limit (10000)"}


@pytest.mark.parametrize("option", ["memory", "corrections"])
def test_a_server_without_a_state_directory_does_not_start(bundle_path: Path, option: str) -> None:
    options: dict[str, Any] = {option: "m" if option == "memory" else True}
    with pytest.raises(Exception, match=f"--{option}: expected --state-dir"), run_service(bundle_path, **options):
        pass


def test_the_operator_has_commands_for_all_of_it(
    state_dir: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_DIR", str(state_dir))
    pairs, exported = state_dir / "a.tmx", state_dir / "b.tsv"
    pairs.write_text(TMX, encoding="utf-8")

    def run(*arguments: object) -> list[str]:
        monkeypatch.setattr("sys.argv", ["dragoman", *map(str, arguments)])
        capsys.readouterr()
        command_line.main()
        # The service may log at any time, in either format.
        return [line for line in capsys.readouterr().out.splitlines() if not LOGGED.search(line)]

    assert run("memory", "import", "site", pairs, "en", "de") == ["added: 1"]
    number = ask("other", "POST", "corrections", json={**CORRECTION, "memory": "site"}).json()["id"]
    assert [row["id"] for row in json.loads("".join(run("corrections", "list", "--json")))] == [number]
    assert [line.split()[:2] for line in run("corrections", "list")] == [["id", "memory"], [str(number), "site"]]
    assert run("corrections", "list", "--terms") == ["no term"]
    with pytest.raises(SystemExit, match="expected either ids or --all"):
        run("corrections", "approve")
    assert run("corrections", "approve", number) == ["approved: 1"]
    assert [line.split()[:3] for line in run("memory", "list") if "site" in line] == [["site", "2", "2"]]
    assert ("site", 2) in [
        (row["name"], row["entry_count"]) for row in json.loads("".join(run("memory", "list", "--json")))
    ]
    run("memory", "export", "site", exported, "en", "de")
    assert exported.read_text("utf-8") == "one 2\teins 2\ngamma delta.\tGamma.\n"
    run("corrections", "export", state_dir / "c.po", "en", "de")
    assert 'msgid "gamma delta."\nmsgstr "Gamma."\n' in (state_dir / "c.po").read_text("utf-8")
    assert run("memory", "delete", "site", "--origin", "correction") == ["deleted: 1"]
    ask("other", "POST", "corrections", json=CORRECTION)
    assert run("corrections", "approve", "--all", "--delete") == ["deleted: 1"]
    assert run("memory", "delete", "site") == ["deleted: 1"]
    pairs.write_text("<tmx>", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"a\.tmx: malformed XML"):
        run("memory", "import", "site", pairs, "en", "de")
