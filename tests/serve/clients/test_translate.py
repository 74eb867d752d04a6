"""`dragoman translate` as a process, against a real gRPC server that answers in capitals."""

import os
import pty
import signal
import sys
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any

import grpc
import pytest

from dragoman import command_line
from dragoman.protos import translation_pb2 as messages
from dragoman.protos.translation_pb2_grpc import TranslationServiceServicer, add_TranslationServiceServicer_to_server
from tests.support.cases import cases
from tests.support.forked import ForkedPopen
from tests.support.scripted_server import reply, run_scripted_server

CASES = cases(__file__)

TIMEOUT_SECONDS = 60

Stream = int | IO[bytes] | None


class CapitalsServicer(TranslationServiceServicer):
    """Answers each text in capitals, scored by minus its length; a few texts have special answers."""

    def __init__(self) -> None:
        self.requests: list[messages.TranslateRequest] = []
        self.later_answered = threading.Event()
        self.letter_taken = threading.Event()

    def Translate(  # noqa: N802
        self, request: messages.TranslateRequest, context: grpc.ServicerContext
    ) -> messages.TranslateResponse:
        self.requests.append(request)
        return messages.TranslateResponse(translations=[self._answer(text, request, context) for text in request.text])

    def _answer(
        self, text: str, request: messages.TranslateRequest, context: grpc.ServicerContext
    ) -> messages.Translation:
        if text == "invalid":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "text[0]: not this one")
        if text == "busy" and len(self.requests) == 1:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")
        if text == "first":
            self.later_answered.wait(TIMEOUT_SECONDS)
        if text == "later":
            self.later_answered.set()
        translation = messages.Translation(
            text=text.upper(), score=-len(text), finish_reason=messages.FINISH_REASON_EOS
        )
        if request.options.alignments:
            spans = [messages.Span(start=place, end=place + 1) for place in range(len(text))]
            links = [messages.Link(source=place, target=place) for place in range(0, len(text), 2)]
            translation.alignments.append(messages.Alignment(source=spans, target=spans, links=links))
        return translation

    def TranslateStream(  # noqa: N802
        self, request: messages.TranslateRequest, context: grpc.ServicerContext
    ) -> Iterator[messages.TranslateStreamResponse]:
        """Sends an answer letter by letter; the second letter of "slow" waits for an event."""
        result = self.Translate(request, context)
        for letter in result.translations[0].text:
            if result.translations[0].text == "SLOW" and letter == "L":
                self.letter_taken.wait(TIMEOUT_SECONDS)
            if letter == "!":
                context.abort(grpc.StatusCode.INTERNAL, "the translation failed inside the server")
            yield messages.TranslateStreamResponse(delta=messages.TranslationDelta(text=letter))
        yield messages.TranslateStreamResponse(result=result)


@pytest.fixture(name="servicer")
def _servicer() -> CapitalsServicer:
    return CapitalsServicer()  # type: ignore[abstract]


@pytest.fixture(name="server")
def _server(servicer: CapitalsServicer) -> Iterator[str]:
    with ThreadPoolExecutor(8) as executor:
        server = grpc.server(executor)
        add_TranslationServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def start(*options: str, stdin: Stream = PIPE, stdout: Stream = PIPE, stderr: Stream = PIPE) -> Popen[bytes]:
    command = [sys.executable, "-m", "dragoman", "translate", *options]
    return ForkedPopen(command, stdin=stdin, stdout=stdout, stderr=stderr)


def translate(content: bytes, *options: str) -> tuple[int, bytes, str]:
    """Returns exit status, standard output and standard error."""
    process = start(*options)
    output, errors = process.communicate(content, TIMEOUT_SECONDS)
    return process.returncode, output, errors.decode()


def test_a_folder_is_translated_but_for_files_that_fail_and_those_that_exist(server: str, tmp_path: Path) -> None:
    """A second call translates what the first one has not."""
    source, out = tmp_path / "in", tmp_path / "out"
    texts = {"a.txt": "one\n", "b.json": "{", "c.xyz": "", "sub/d.md": "# two\n", "sub/e.txt": "invalid\n"}
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    call = ("--server", server, "--target-language", "de", str(source), "--out", str(out))
    status, _, errors = translate(b"", *call)
    assert status == 1
    assert {path.name: path.read_text(encoding="utf-8") for path in out.rglob("*.*")} == {
        "a.txt": "ONE\n",
        "d.md": "# TWO\n",
    }
    assert errors.splitlines()[0] == f"{source}/c.xyz: skipped, unknown format"
    assert f"\ndragoman translate: {source}/sub/e.txt: INVALID_ARGUMENT: text[0]: not this one\n" in errors
    assert errors.splitlines()[-1] == "dragoman translate: 2 translated, 0 kept, 1 skipped, 2 failed"
    for name, text in (("a.txt", "three\n"), ("b.json", "{}"), ("sub/e.txt", "five\n")):
        (source / name).write_text(text, encoding="utf-8")
    status, _, errors = translate(b"", *call)
    assert (status, errors.splitlines()[-1]) == (0, "2 translated, 2 kept, 1 skipped, 0 failed")
    assert (out / "a.txt").read_text(encoding="utf-8") == "ONE\n"
    status, _, errors = translate(b"", *call, "--overwrite", "--include", "*.txt,*.md", "--exclude", "sub/*")
    assert (status, errors) == (0, f"{source}/a.txt: translated to {out}/a.txt\n")
    assert (out / "a.txt").read_text(encoding="utf-8") == "THREE\n"


def test_files_end_at_a_failure_that_all_of_them_have(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\n", encoding="utf-8")
    options = ("--server", "localhost:1", "--timeout-seconds", "1", "--out", str(tmp_path / "out"))
    status, _, errors = translate(b"", *options, str(tmp_path))
    assert (status, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"dragoman translate: {tmp_path}/a.txt: ")


@pytest.mark.parametrize(
    ("options", "content", "expected"),
    [
        pytest.param(
            (), "\n".join(f"line {i}" for i in range(200)), "".join(f"LINE {i}\n" for i in range(200)), id="many"
        ),
        *(pytest.param(*row, id=name) for name, row in CASES["each line becomes its translation in order"].items()),
    ],
)
def test_each_line_becomes_its_translation_in_order(
    server: str, options: tuple[str, ...], content: str, expected: str
) -> None:
    assert translate(content.encode(), "--server", server, *options) == (0, expected.encode(), "")


def test_blank_lines_are_not_sent(server: str, servicer: CapitalsServicer) -> None:
    assert translate(b"\none\n \t\ntwo\n", "--server", server)[0] == 0
    assert sorted(text for request in servicer.requests for text in request.text) == ["one", "two"]


def test_options_are_sent_with_every_line(server: str, servicer: CapitalsServicer) -> None:
    flags = ["--source-language", "en", "--target-language", "de", "--model", "big", "--allow-pivot"]
    flags += ["--beam-size", "5", "--length-penalty", "0.6", "--suppressed-tokens", "▁a", "--suppress-unknown"]
    assert translate(b"one\ntwo\n", "--server", server, *flags) == (0, b"ONE\nTWO\n", "")
    options = messages.SearchOptions(beam_size=5, length_penalty=0.6, suppressed_tokens=["▁a"], suppress_unknown=True)
    languages: Any = {"source_language": "en", "target_language": "de", "model": "big"}
    expected = messages.TranslateRequest(**languages, allow_pivot=True, split_sentences=True, format="text")
    expected.options.CopyFrom(options)
    for request in servicer.requests:
        request.ClearField("text")
        assert request == expected


def test_markup_options_are_sent(server: str, servicer: CapitalsServicer) -> None:
    flags = ["--format", "xml", "--ignore-tags", "x,code", "--splitting-tags", "p", "--non-splitting-tags", "b"]
    assert translate(b"<p>one</p>", "--server", server, *flags) == (0, b"<P>ONE</P>\n", "")
    (request,) = servicer.requests
    assert (request.format, list(request.ignore_tags)) == ("xml", ["x", "code"])
    assert (list(request.splitting_tags), list(request.non_splitting_tags)) == (["p"], ["b"])


def test_the_terms_of_a_file_are_sent(server: str, servicer: CapitalsServicer, tmp_path: Path) -> None:
    (tmp_path / "terms.csv").write_text("house,Haus,Hauses\nDragoman,Dragoman\n")
    flags = ["--terms", str(tmp_path / "terms.csv"), "--glossary", "a,b"]
    assert translate(b"one\n", "--server", server, *flags) == (0, b"ONE\n", "")
    (request,) = servicer.requests
    terms = {term.source: list(term.targets) for term in request.terms}
    assert terms == {"house": ["Haus", "Hauses"], "Dragoman": ["Dragoman"]}
    assert list(request.glossary) == ["a", "b"]


def test_named_tags_of_a_file_stay(server: str, servicer: CapitalsServicer, tmp_path: Path) -> None:
    page = "<p>{}</p><aside>two</aside><p><code>three</code></p>"
    (tmp_path / "a.html").write_text(page.format("one"))
    flags = ["--target-language", "de", "--ignore-tags", "aside", str(tmp_path / "a.html")]
    assert translate(b"", "--server", server, *flags)[:2] == (0, b"")
    assert (tmp_path / "a.de.html").read_text() == page.format("ONE")
    (request,) = servicer.requests
    assert list(request.ignore_tags) == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [("a.tsv", b"house\n", "entry 0"), ("a.txt", b"", ".tsv, .csv, .tbx"), ("a.csv", b"\xff", "utf-8")],
)
def test_an_invalid_file_of_terms_is_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    status, output, error = translate(b"one\n", "--server", "localhost:1", "--terms", str(tmp_path / name))
    assert (status, output) == (1, b"")
    assert error.startswith(f"dragoman translate: --terms: {tmp_path / name}: ")
    assert problem in error


@pytest.mark.parametrize("flags", [[], ["--stream"]], ids=["whole", "stream"])
@pytest.mark.parametrize("content", ["one\n\n two", "one\n", "", " \n\t\n"])
def test_a_document_is_one_text_and_nothing_is_added_to_it(server: str, content: str, flags: list[str]) -> None:
    assert translate(content.encode(), "--server", server, "--document", *flags) == (0, content.upper().encode(), "")


def test_an_error_of_a_document_names_no_line(server: str) -> None:
    status, output, errors = translate(b"one\n\xff", "--server", server, "--document")
    assert (status, output) == (1, b"")
    assert errors == "dragoman translate: byte 0xff at offset 4, expected UTF-8\n"


@pytest.mark.parametrize(("options", "status", "field"), CASES["an error is one line that names the cause"])
def test_an_error_is_one_line_that_names_the_cause(
    options: list[str], status: int, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python prints a message in place of a status, and exits with status 1."""
    with pytest.raises(SystemExit) as ended:
        command_line.run("translate", options)
    output, errors = capsys.readouterr()
    message = errors.removesuffix("\n") if status == 2 else str(ended.value.code)
    assert (output, ended.value.code == 2) == ("", status == 2)
    assert message.startswith(f"dragoman translate: {field}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("options", "content", "output", "problem"), CASES["a failing line is named after the output of the lines before"]
)
def test_a_failing_line_is_named_after_the_output_of_the_lines_before(
    server: str, options: list[str], content: str, output: str, problem: str
) -> None:
    status, written, errors = translate(content.encode("latin-1"), "--server", server, *options)
    assert (status, written.decode()) == (1, output)
    assert errors.startswith(f"dragoman translate: {problem}")


def test_the_port_of_rest_is_named_with_what_to_do() -> None:
    with run_scripted_server() as rest:
        rest.answers.append(reply(status=400))
        status, _, errors = translate(b"one\n", "--server", rest.address.removeprefix("http://"))
    assert status == 1
    assert "it may be the server's REST port; expected its gRPC port (default: 8001)" in errors


def test_a_url_is_named_with_what_is_expected() -> None:
    status, _, errors = translate(b"one\n", "--server", "http://127.0.0.1:1")
    assert (status, "HOST:PORT without http://" in errors) == (1, True)


def test_a_port_without_tls_is_named_with_what_to_do(server: str) -> None:
    status, _, errors = translate(b"one\n", "--server", server, "--tls")
    assert status == 1
    # gRPC logs lines before it.
    assert errors.splitlines()[-1].startswith("dragoman translate: line 1: UNAVAILABLE: the port has no TLS: ")


def test_text_is_utf_8_in_any_locale(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert translate("grüße".encode(), "--server", server) == (0, "GRÜSSE\n".encode(), "")


def pipes_of(process: Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr


def test_a_typed_line_is_answered_at_once_and_an_interrupt_ends_quietly(server: str) -> None:
    with start("--server", server) as process:
        typed, output, errors = pipes_of(process)
        for text in (b"one\n", b"two\n"):
            typed.write(text)
            typed.flush()
            assert output.readline() == text.upper()
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 130
        assert errors.read() == b""


def test_a_closed_output_ends_the_command_quietly(server: str) -> None:
    endless = Popen(["/usr/bin/yes", "one"], stdout=PIPE)
    with endless, start("--server", server, stdin=endless.stdout) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ONE\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_SECONDS) == 0
        assert process.stderr.read() == b""
        endless.kill()


def test_a_stream_writes_a_translation_as_it_grows(server: str, servicer: CapitalsServicer) -> None:
    """The server sends the second letter only after the first one is written."""
    with start("--server", server, "--stream") as process:
        typed, output, _ = pipes_of(process)
        typed.write(b"slow\n")
        typed.flush()
        assert os.read(output.fileno(), 100) == b"S"
        servicer.letter_taken.set()
        typed.close()
        assert output.read() == b"LOW\n"


def test_a_terminal_shows_the_progress_of_output_to_a_file(server: str, tmp_path: Path) -> None:
    terminal, terminal_end = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with (
        (tmp_path / "output").open("wb") as output,
        start("--server", server, stdout=output, stderr=terminal_end) as process,
    ):
        process.communicate(b"one\n", TIMEOUT_SECONDS)
    os.close(terminal_end)
    assert b"1 lines" in os.read(terminal, 1 << 16)
    os.close(terminal)
    assert (tmp_path / "output").read_bytes() == b"ONE\n"
