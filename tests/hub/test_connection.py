"""A hub that answers late, wrongly, without end or not at all costs a bounded time and memory and gets one line."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dragoman.hub import connection
from dragoman.hub.connection import HubAccess, StatusError, read_answer, read_size, retry_after_seconds
from dragoman.hub.names import HubError
from tests.support import scripted_server
from tests.support.paths import ROOT
from tests.support.scripted_server import Answer, ScriptedServer, reply, run_scripted_server, stall_after, trickle

ANY = TypeAdapter(Any)
GOOD = reply(b'{"a": 1}')


def read(server: ScriptedServer, *answers: Answer) -> Any:
    server.answers[:] = answers
    return read_answer(HubAccess("model", "the network and HF_ENDPOINT"), f"{server.address}/api?x=secret", ANY)


def refusal(server: ScriptedServer, *answers: Answer) -> str:
    with pytest.raises(HubError) as refused:
        read(server, *answers)
    text = str(refused.value)
    assert text.startswith("model: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_temporary_failure_is_repeated(status: int, server: ScriptedServer) -> None:
    assert read(server, reply(status=status), reply(status=status), GOOD) == {"a": 1}


def test_temporary_failures_are_repeated_a_bounded_number_of_times(server: ScriptedServer) -> None:
    text = refusal(server, reply(status=503))
    assert "answers with status 503: check the network and HF_ENDPOINT, then repeat" in text
    assert len(server.requests) == connection.MAX_ATTEMPTS


def test_a_wait_within_the_patience_is_kept(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(connection, "pause", wait)
    assert read(server, reply(status=429, retry_after="7"), GOOD) == {"a": 1}
    assert waits == [7]
    assert "answers with status 429: tries again in 7 s" in capsys.readouterr().out


def test_a_longer_wait_is_refused_at_once_with_the_time_after_which_to_try_again(server: ScriptedServer) -> None:
    expected = datetime.now(UTC) + timedelta(hours=1)
    text = refusal(server, reply(status=429, retry_after="3600"))
    assert "status 429: it asks to wait 3,600 s: repeat the command after " in text
    stated = datetime.strptime(text.partition(" after ")[2], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    assert abs(stated - expected) < timedelta(minutes=5)
    assert len(server.requests) == 1


def test_the_wait_may_be_a_date(server: ScriptedServer) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    assert "repeat the command after" in refusal(server, reply(status=503, retry_after=moment))
    assert len(server.requests) == 1


@given(st.text() | st.integers().map(str) | st.datetimes().map(format_datetime) | st.from_regex(r"[0-9]{1,5000}"))
def test_any_text_is_a_wait_of_zero_or_more_seconds(text: str) -> None:
    assert 0 <= retry_after_seconds(text) <= connection.MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize("text", ["", "soon", "-5", "Fri, 31 Dec 99999999999999999999 23:59:59 GMT", "1.5", "²"])
def test_a_wait_that_is_none_counts_as_none(text: str) -> None:
    assert retry_after_seconds(text) == 0


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_access_names_the_token_and_is_not_repeated(status: int, server: ScriptedServer) -> None:
    text = refusal(server, reply(status=status))
    assert f"status {status}: it refuses access, set or correct the token" in text
    assert "later" not in text
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 410, 451])
def test_a_final_status_is_not_repeated(status: int, server: ScriptedServer) -> None:
    with pytest.raises(StatusError) as refused:
        read(server, reply(status=status, x_error_code="Gone"))
    assert (refused.value.status, refused.value.code, len(server.requests)) == (status, "Gone", 1)


@pytest.mark.parametrize("answer", [scripted_server.silence, trickle(b"HTTP/1.1 200 OK\r\nx: ", b"x", 0.02)])
def test_a_hub_that_never_answers_is_given_up(
    answer: Answer, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.2)
    assert "no answer in 0.2 s: check the network and HF_ENDPOINT" in refusal(server, answer)
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [stall_after(b"{", 100), trickle(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.02)])
def test_a_body_that_stalls_is_given_up(
    answer: Answer, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    assert "stalls: less than 30,000 bytes in 0.2 s" in refusal(server, answer)


def test_an_answer_ends_in_a_bounded_time(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(connection, "MIN_WINDOW_BYTES", 1)
    assert "the answer does not end in 0.3 s" in refusal(server, trickle(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.02))


def test_an_answer_without_end_is_not_read_into_memory(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 100_000)
    assert "more than 100,000 bytes" in refusal(server, trickle(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536, 0.0))
    assert len(server.requests) == 1


def test_a_web_page_is_refused_with_what_to_check(server: ScriptedServer) -> None:
    text = refusal(server, reply(b"<html>Sign in</html>", content_type="text/html; charset=utf-8"))
    assert "answers with a web page, as the login page of a network does: check the network and HF_ENDPOINT" in text


@pytest.mark.parametrize("content", [b"", b"<html>", b"{", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_json_is_refused(content: bytes, server: ScriptedServer) -> None:
    assert "expected JSON as of a hub: Invalid JSON" in refusal(server, reply(content))


def test_a_connection_that_breaks_is_tried_again(server: ScriptedServer) -> None:
    content = json.dumps({"a": "x" * 100}).encode()
    assert read(server, reply(content[:50], length=len(content)), lambda _: None, reply(content)) == {"a": "x" * 100}


def test_an_answer_that_is_no_http_is_refused(server: ScriptedServer) -> None:
    def greet(handler: scripted_server.Handler) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    assert "the connection broke: RemoteProtocolError" in refusal(server, greet)


def test_redirects_without_end_are_refused(server: ScriptedServer) -> None:
    assert "TooManyRedirects" in refusal(server, reply(status=302, location="/api"))


def test_a_redirect_to_a_host_with_an_impossible_name_is_refused(server: ScriptedServer) -> None:
    assert "IDNAError" in refusal(server, reply(status=302, location="http://xn--0.invalid/"))


def test_a_redirect_to_another_host_loses_the_token(server: ScriptedServer) -> None:
    with run_scripted_server() as other:
        other.answers.append(GOOD)
        server.answers.append(reply(status=302, location=f"{other.address}/a?signature=secret"))
        access = HubAccess("model", "the network", {"authorization": "Bearer secret"})
        assert read_answer(access, f"{server.address}/api", ANY) == {"a": 1}
        assert "authorization" in server.headers[0]
        assert "authorization" not in other.headers[0]


def test_a_message_has_no_query_of_an_address(server: ScriptedServer) -> None:
    assert "secret" not in refusal(server, reply(status=400))


@pytest.mark.parametrize("address", ["nowhere", "ftp://127.0.0.1/x", "http://[", "http://127.0.0.1:9/x"])
def test_a_wrong_address_is_one_line(address: str) -> None:
    with pytest.raises(HubError, match=r"^model: .*check the network and HF_ENDPOINT"):
        read_answer(HubAccess("model", "the network and HF_ENDPOINT"), address, ANY)


def test_a_wrong_proxy_is_one_line(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "nonsense://127.0.0.1:9")
    assert "correct the token, HTTP_PROXY" in refusal(server, GOOD)


def test_a_size_is_that_of_the_header_or_none(server: ScriptedServer) -> None:
    access = HubAccess("model", "the network")
    server.answers[:] = [reply(length=5), reply(length=-1), reply(status=405), reply(status=404)]
    assert [read_size(access, server.address) for _ in range(3)] == [5, None, None]
    with pytest.raises(StatusError):
        read_size(access, server.address)


def test_only_the_shared_code_opens_connections() -> None:
    libraries = ("httpx", "urllib.request", "http.client", "requests", "aiohttp", "socket", "hf_hub_download")
    users = {
        path.name
        for path in (ROOT / "hub").glob("*.py")
        if any(f"import {library}" in path.read_text(encoding="utf-8") for library in libraries)
    }
    assert users <= {"connection.py", "download.py"}
