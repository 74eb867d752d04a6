"""Files of a hub that sends too much, too little, something else or nothing: what is kept, removed and said."""

import hashlib
import shutil
from pathlib import Path

import pytest

from dragoman.hub import connection, download
from dragoman.hub.connection import HubAccess
from dragoman.hub.download import MAX_FILE_BYTES, RemoteFile
from dragoman.hub.names import HubError
from tests.support.scripted_server import Answer, ScriptedServer, ranged, reply, stall_after, trickle

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ACCESS = HubAccess("model", "the network and HF_ENDPOINT")
ENDLESS = trickle(b"HTTP/1.1 200 OK\r\n\r\n", bytes(65536), 0.0)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """The part of the file in the folder of the downloads."""
    return tmp_path / "file.part"


def fetch(server: ScriptedServer, folder: Path, *answers: Answer, size: int | None = len(CONTENT)) -> bytes:
    server.answers[:] = answers
    file = RemoteFile("file", f"{server.address}/file", size, SHA256 if size is not None else None)
    download.download(ACCESS, [file], folder)
    assert [path.name for path in folder.iterdir()] == ["file"]
    return (folder / "file").read_bytes()


def refusal(server: ScriptedServer, folder: Path, *answers: Answer, size: int | None = len(CONTENT)) -> str:
    with pytest.raises(HubError) as refused:
        fetch(server, folder, *answers, size=size)
    assert str(refused.value).startswith("model: ")
    assert "force_download" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("extra", [b"", b"more"])
def test_a_part_as_long_as_the_file_or_longer_blocks_nothing(extra: bytes, server: ScriptedServer, part: Path) -> None:
    part.write_bytes(bytes(len(CONTENT)) + extra)
    if not extra:
        assert "sha256 is " in refusal(server, part.parent, ranged(CONTENT))
        assert not part.exists()
    assert fetch(server, part.parent, ranged(CONTENT)) == CONTENT


def test_a_part_continues(server: ScriptedServer, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    assert fetch(server, part.parent, ranged(CONTENT)) == CONTENT
    assert server.requests == [("GET", "/file", "bytes=1000-")]


def test_a_part_that_the_hub_does_not_continue_starts_anew(server: ScriptedServer, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    assert fetch(server, part.parent, reply(status=416), reply(CONTENT)) == CONTENT
    assert [given for _, _, given in server.requests] == ["bytes=1000-", None]


def test_a_hub_without_ranges_sends_the_whole_file(server: ScriptedServer, part: Path) -> None:
    part.write_bytes(bytes(1000))
    assert fetch(server, part.parent, reply(CONTENT)) == CONTENT


@pytest.mark.parametrize("given", ["bytes 500-102399/102400", "nonsense", ""])
def test_another_range_than_the_requested_one_starts_anew(given: str, server: ScriptedServer, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    assert fetch(server, part.parent, reply(CONTENT[500:], 206, content_range=given), reply(CONTENT)) == CONTENT


@pytest.mark.parametrize("length", [None, -1])
def test_more_than_a_stated_size_is_refused_and_removed(length: int | None, server: ScriptedServer, part: Path) -> None:
    text = refusal(server, part.parent, reply(CONTENT + b"more", length=length))
    assert f"sends {'more' if length else '102,404'} bytes, expected " in text
    assert list(part.parent.iterdir()) == []
    assert fetch(server, part.parent, ranged(CONTENT)) == CONTENT


def test_an_endless_file_fills_no_disk(server: ScriptedServer, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sends more bytes, expected at most 102,400" in refusal(server, part.parent, ENDLESS)
    monkeypatch.setattr(download, "MAX_UNSTATED_BYTES", 1_000_000)
    assert "sends more bytes, expected at most 1,000,000" in refusal(server, part.parent, ENDLESS, size=None)
    usage = shutil.disk_usage(part.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=400_000))
    assert "sends more bytes, expected at most 200,000" in refusal(server, part.parent, ENDLESS, size=None)
    assert list(part.parent.iterdir()) == []


def test_a_stated_length_needs_free_space(server: ScriptedServer, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(part.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(HubError, match="needs 20 MB for download and conversion, 1 MB are free"):
        fetch(server, part.parent, reply(b"", length=10_000_000), size=None)


def test_less_than_the_stated_size_is_refused_and_removed(server: ScriptedServer, part: Path) -> None:
    assert "sends 1,000 bytes, expected 102,400" in refusal(server, part.parent, reply(CONTENT[:1000]))
    assert list(part.parent.iterdir()) == []


def test_a_body_that_ends_early_continues_where_it_stopped(server: ScriptedServer, part: Path) -> None:
    assert fetch(server, part.parent, reply(CONTENT[:3000], length=-1), ranged(CONTENT)) == CONTENT
    assert [given for _, _, given in server.requests] == [None, "bytes=3000-"]


def test_a_hub_that_always_ends_early_is_given_up_and_the_part_is_kept(server: ScriptedServer, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    text = refusal(server, part.parent, reply(b"", 206, length=-1, content_range="bytes 1000-102399/102400"))
    assert "ends after 1,000 of 102,400 bytes" in text
    assert "a download continues where it stopped" in text
    assert len(server.requests) == connection.MAX_ATTEMPTS
    assert part.read_bytes() == CONTENT[:1000]


def test_a_stalled_download_continues(server: ScriptedServer, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    assert fetch(server, part.parent, stall_after(CONTENT[:1000], len(CONTENT)), ranged(CONTENT)) == CONTENT
    assert server.requests[-1] == ("GET", "/file", "bytes=1000-")


def test_a_web_page_in_place_of_a_file_is_refused(server: ScriptedServer, part: Path) -> None:
    page = reply(b"<html>", content_type="text/html")
    assert "answers with a web page" in refusal(server, part.parent, page, size=None)
    assert list(part.parent.iterdir()) == []


def test_a_file_without_content_is_complete(server: ScriptedServer, part: Path) -> None:
    download.download(ACCESS, [RemoteFile("file", f"{server.address}/file", 0)], part.parent)
    assert (part.parent / "file").read_bytes() == b""
    assert server.requests == []


@pytest.mark.parametrize("size", [-5, MAX_FILE_BYTES + 1])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(HubError, match=r"^file .*: the hub states a size of "):
        RemoteFile("file", "http://127.0.0.1:9/file", size)


def test_a_message_about_a_range_leaves_out_the_signature_of_a_redirect(
    server: ScriptedServer, part: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part.write_bytes(CONTENT[:1000])
    redirect = reply(status=302, location=f"{server.address}/other?signature=secret")
    wrong = reply(CONTENT[500:], 206, content_range="nonsense")
    assert fetch(server, part.parent, redirect, wrong, reply(CONTENT)) == CONTENT
    told = capsys.readouterr().out
    assert (f"{server.address}/other: answers with another range" in told, "secret" in told) == (True, False)
