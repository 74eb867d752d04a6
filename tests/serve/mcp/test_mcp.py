"""`dragoman mcp` with the client of the protocol's SDK, in front of a real server."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import httpx
import httpx2
import pytest
from anyio import open_process, sleep
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from dragoman.serve.mcp.tools import MAX_TEXTS
from tests.support.cases import cases
from tests.support.commands import refusal
from tests.support.live import LiveService, run_service

pytestmark = pytest.mark.anyio

CASES = cases(__file__)
KEY = "0123456789abcdef"
TEXT = "alpha beta."
DICTIONARY = {"source_language": "en", "target_language": "de", "entries": [{"source": "a", "targets": ["b"]}]}
GLOSSARY = {"name": "places", "dictionaries": [DICTIONARY]}


@pytest.fixture(scope="module")
def served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=tmp_path_factory.mktemp("state")) as live:
        yield live


def command(live: LiveService, *options: str) -> list[str]:
    return ["-m", "dragoman", "mcp", "--server", live.http_url.removeprefix("http://"), *options]


def assistant(live: LiveService, *options: str) -> AbstractAsyncContextManager[Client]:
    return Client(StdioServerParameters(command=sys.executable, args=command(live, *options)))


@asynccontextmanager
async def in_process(live: LiveService, root: Path | None = None) -> AsyncIterator[Client]:
    """Yields a client of a server in this process."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - only here

    from dragoman.serve.clients.rest import RestClient  # noqa: PLC0415
    from dragoman.serve.mcp.folder import Folder  # noqa: PLC0415
    from dragoman.serve.mcp.tools import Tools  # noqa: PLC0415

    url = httpx.URL(live.http_url)
    async with RestClient.open(url.host, url.port or 80) as rest:
        server = MCPServer[Any]("test")
        Tools(rest, Folder.open(root)).add_to(server)
        async with Client(server) as client:
            yield client


async def failure(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text.removeprefix(f"Error executing tool {tool}: ")


async def test_an_assistant_finds_typed_tools_and_is_told_that_texts_are_data(served: LiveService) -> None:
    async with assistant(served) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert sorted(tools) == ["detect", "glossaries", "models", "translate", "translate_document"]
    assert all(tool.output_schema for tool in tools.values())
    for name in ("translate", "translate_document", "detect"):
        assert "data" in str(tools[name].description), name
    schema = tools["translate"].input_schema
    assert sorted(schema["required"]) == ["target_language", "texts"]
    assert schema["properties"]["texts"]["maxItems"] == MAX_TEXTS


async def test_each_tool_gives_what_the_server_gives(served: LiveService) -> None:
    expected = served.post({"text": TEXT, "target_language": "de"}).json()["translations"][0]["text"]
    glossary = served.post(GLOSSARY, path="/v1/glossaries").json()
    async with in_process(served) as client:
        arguments = {"texts": [TEXT, TEXT], "source_language": "en", "target_language": "de"}
        found = await client.call_tool("translate", arguments)
        detected = await client.call_tool("detect", {"texts": ["Das ist ein Haus."]})
        glossaries = await client.call_tool("glossaries", {})
        models = await client.call_tool("models", {})
    assert found.structured_content is not None
    assert [each["text"] for each in found.structured_content["translations"]] == [expected, expected]
    assert detected.structured_content is not None
    assert len(detected.structured_content["detections"]) == 1
    assert glossaries.structured_content is not None
    assert [each["id"] for each in glossaries.structured_content["glossaries"]] == [glossary["id"]]
    assert models.structured_content is not None
    (model,) = models.structured_content["models"]
    assert (model["state"], model["directions"]) == ("ready", [{"source_language": "en", "target_language": "de"}])


async def test_a_document_below_the_root_is_translated_next_to_it(served: LiveService, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXT)
    expected = served.post({"text": TEXT, "target_language": "de"}).json()["translations"][0]["text"]
    async with assistant(served, "--root", str(tmp_path)) as client:
        arguments = {"path": "one.txt", "source_language": "en", "target_language": "de"}
        found = await client.call_tool("translate_document", arguments)
        again = await failure(client, "translate_document", **arguments)
    assert found.structured_content == {"path": "one.de.txt"}
    assert (tmp_path / "one.de.txt").read_text() == expected
    assert again == "path: 'one.de.txt' exists, expected no file of this name"


async def test_a_file_outside_of_the_root_is_refused_also_behind_a_link(served: LiveService, tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret.txt"
    root.mkdir()
    secret.write_text(TEXT)
    (root / "link.txt").symlink_to(secret)
    async with in_process(served, root) as client:
        for path in ("../secret.txt", str(secret), "link.txt", "", ".", "one\0.txt", "absent.txt"):
            problem = await failure(client, "translate_document", path=path, target_language="de")
            assert problem == f"path: {path!r}, expected a file below the folder of --root"
    async with in_process(served) as client:
        problem = await failure(client, "translate_document", path="one.txt", target_language="de")
        assert "expected the option --root" in problem
    assert sorted(path.name for path in root.iterdir()) == ["link.txt"]


async def test_a_refusal_of_the_server_reaches_the_assistant_as_an_error(served: LiveService) -> None:
    async with in_process(served) as client:
        problem = await failure(client, "translate", texts=[TEXT], target_language="klingon")
        assert "target_language" in problem
        assert "texts" in await failure(client, "translate", texts=[], target_language="de")
        assert "texts" in await failure(client, "translate", texts=[TEXT] * (MAX_TEXTS + 1), target_language="de")


async def test_an_answer_has_a_size_limit(served: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process(served) as client:
        monkeypatch.setattr("dragoman.serve.mcp.tools.MAX_ANSWER_CHARACTERS", 0)
        problem = await failure(client, "translate", texts=[TEXT], target_language="de")
    assert "expected at most 0: ask for fewer texts at once" in problem


def test_standard_output_has_nothing_but_the_protocol(served: LiveService) -> None:
    first = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    lines = [json.dumps(first), "no JSON", json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})]
    done = subprocess.run(
        [sys.executable, *command(served)], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())
    assert '"id":1' in done.stdout


async def test_http_needs_the_key_and_refuses_pages_of_other_sites(served: LiveService) -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--http-port", str(port), "--http-key", KEY, "--http-origins", '["http://friend.example"]')
    url, headers = f"http://127.0.0.1:{port}/mcp", {"authorization": f"Bearer {KEY}"}
    process = await open_process([sys.executable, *command(served, *options)])
    try:
        async with httpx.AsyncClient() as plain:
            while True:
                try:
                    refused = await plain.post(url, json={})
                    break
                except httpx.ConnectError:
                    await sleep(0.05)
            assert (refused.status_code, KEY in refused.text) == (401, False)
            for name, value, status in (("origin", "http://evil.example", 403), ("host", "evil.example", 421)):
                answer = await plain.post(url, json={}, headers={**headers, name: value})
                assert answer.status_code == status, name
            # A browser asks without the key before a page sends it.
            asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
            for origin, status in (("http://friend.example", 200), ("http://evil.example", 400)):
                answer = await plain.options(url, headers={**asked, "origin": origin})
                assert answer.status_code == status, origin
                assert ("access-control-allow-origin" in answer.headers) == (status == 200)
        async with (
            httpx2.AsyncClient(headers={**headers, "origin": "http://friend.example"}) as session,
            Client(streamable_http_client(url, http_client=session)) as client,
        ):
            found = await client.call_tool("models", {})
        assert found.structured_content is not None
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize(("options", "problem"), CASES["refused"])
def test_an_invalid_option_is_named(options: list[str], problem: str) -> None:
    assert problem in refusal("mcp", *options)
