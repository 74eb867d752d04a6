"""`dragoman translate` as a process, against a real gRPC server that answers in capitals."""

import asyncio
import os
import pty
import signal
import sys
import termios
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Unpack

import grpc
import pytest

from model.tokenizer.tokenizer import Tokenizer
from protos.translation_pb2 import (
    FINISH_REASON_EOS,
    GetModelRequest,
    ListModelsRequest,
    ListModelsResponse,
    Model,
    ScoreRequest,
    ScoreResponse,
    SearchOptions,
    TranslateManyRequest,
    TranslateManyResponse,
    TranslateRequest,
    TranslateResponse,
    TranslateStreamResponse,
    Translation,
    TranslationDelta,
)
from protos.translation_pb2_grpc import TranslationServiceServicer, add_TranslationServiceServicer_to_server
from serve.clients.messages import Wanted
from serve.clients.text_clients import LocalTranslator, TranslatedText
from serve.clients.translate import Line, LineError, stream_lines, translate_lines
from serve.settings import ServeSettings
from serve.translation.fields import SearchFields
from tests.support.certificates import Authority
from tests.support.fakes import EOS_ID, FakeModel
from tests.support.fakes import translate as translate_alone
from tests.support.live import LONG_TEXT, MAX_TARGET_TOKENS, direction, put_bundle, run_service

TIMEOUT_SECONDS = 60

Stream = int | IO[bytes] | None


class CapitalsServicer(TranslationServiceServicer):
    """Answers each text in capitals, scored by minus its length; a few texts have special answers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.languages: set[tuple[str, str]] = set()
        self.choices: set[tuple[str, bool]] = set()
        self.options: list[SearchOptions] = []
        self.refusals_left = 1
        self.later_answered = threading.Event()
        self.letter_taken = threading.Event()

    def Translate(self, request: TranslateRequest, context: grpc.ServicerContext) -> TranslateResponse:  # noqa: N802
        """Serves one request."""
        (text,) = request.text
        self.texts.append(text)
        self.languages.add((request.source_language, request.target_language))
        self.choices.add((request.model, request.allow_pivot))
        self.options.append(request.options)
        if text == "invalid":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "text[0]: not this one")
        if text == "busy" and self.refusals_left:
            self.refusals_left -= 1
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")
        if text == "first":
            self.later_answered.wait(TIMEOUT_SECONDS)
        if text == "later":
            self.later_answered.set()
        translation = Translation(text=text.upper(), score=-len(text), finish_reason=FINISH_REASON_EOS)
        return TranslateResponse(translations=[translation])

    def TranslateStream(  # noqa: N802
        self, request: TranslateRequest, context: grpc.ServicerContext
    ) -> Iterator[TranslateStreamResponse]:
        """Sends an answer letter by letter; the second letter of "slow" waits for an event."""
        result = self.Translate(request, context)
        for letter in result.translations[0].text:
            if result.translations[0].text == "SLOW" and letter == "L":
                self.letter_taken.wait(TIMEOUT_SECONDS)
            if letter == "!":
                context.abort(grpc.StatusCode.INTERNAL, "the translation failed inside the server")
            yield TranslateStreamResponse(delta=TranslationDelta(text=letter))
        yield TranslateStreamResponse(result=result)

    def TranslateMany(  # noqa: N802
        self, request_iterator: Iterator[TranslateManyRequest], context: grpc.ServicerContext
    ) -> Iterator[TranslateManyResponse]:
        """Is not called by the command."""
        raise NotImplementedError

    def Score(self, request: ScoreRequest, context: grpc.ServicerContext) -> ScoreResponse:  # noqa: N802
        """Is not called by the command."""
        raise NotImplementedError

    def ListModels(  # noqa: N802
        self, request: ListModelsRequest, context: grpc.ServicerContext
    ) -> ListModelsResponse:
        """Is not called by the command."""
        raise NotImplementedError

    def GetModel(self, request: GetModelRequest, context: grpc.ServicerContext) -> Model:  # noqa: N802
        """Is not called by the command."""
        raise NotImplementedError


@pytest.fixture(name="servicer")
def _servicer() -> CapitalsServicer:
    return CapitalsServicer()


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
    return Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)


def translate(content: bytes, *options: str) -> tuple[int, bytes, str]:
    """Returns exit status, standard output and standard error."""
    process = start(*options)
    output, errors = process.communicate(content, TIMEOUT_SECONDS)
    return process.returncode, output, errors.decode()


def test_each_line_becomes_its_translation_in_order(server: str) -> None:
    lines = [f"line {number}" for number in range(200)]
    expected = "".join(f"{line.upper()}\n" for line in lines)
    assert translate("\n".join(lines).encode(), "--server", server) == (0, expected.encode(), "")


def test_a_line_that_is_answered_late_keeps_its_place(server: str) -> None:
    """The server answers the first line only after the second."""
    assert translate(b"first\nlater\n", "--server", server) == (0, b"FIRST\nLATER\n", "")


def test_the_languages_go_with_every_line(server: str, servicer: CapitalsServicer) -> None:
    options = ("--server", server, "--source-language", "en", "--target-language", "de")
    assert translate(b"one\ntwo\n", *options) == (0, b"ONE\nTWO\n", "")
    assert servicer.languages == {("en", "de")}


def test_languages_that_are_not_given_are_left_to_the_server(server: str, servicer: CapitalsServicer) -> None:
    assert translate(b"one\n", "--server", server)[0] == 0
    assert servicer.languages == {("", "")}


def test_a_model_and_the_leave_to_pivot_go_with_every_line(server: str, servicer: CapitalsServicer) -> None:
    assert translate(b"one\ntwo\n", "--server", server, "--model", "big", "--allow-pivot") == (0, b"ONE\nTWO\n", "")
    assert servicer.choices == {("big", True)}


def test_search_options_are_flags(server: str, servicer: CapitalsServicer) -> None:
    flags = ("--beam-size", "5", "--length-penalty", "0.6", "--suppressed-tokens", "▁a", "--suppress-unknown")
    assert translate(b"one\n", "--server", server, *flags) == (0, b"ONE\n", "")
    expected = SearchOptions(beam_size=5, length_penalty=0.6, suppressed_tokens=["▁a"], suppress_unknown=True)
    assert servicer.options == [expected]


def test_a_search_option_that_is_not_valid_is_named(server: str) -> None:
    status, output, errors = translate(b"one\n", "--server", server, "--hypotheses", "3")
    assert (status, output) == (2, b"")
    assert errors.startswith("dragoman translate: --options.hypotheses: ")


def test_blank_lines_stay_blank_and_are_not_sent(server: str, servicer: CapitalsServicer) -> None:
    assert translate(b"\none\n \t\n\ntwo\n", "--server", server) == (0, b"\nONE\n\n\nTWO\n", "")
    assert sorted(servicer.texts) == ["one", "two"]


def test_scores_come_before_a_tab(server: str) -> None:
    assert translate(b"one\n\n", "--scores", "--server", server) == (0, b"-3.0000\tONE\n\n", "")


def test_text_is_utf_8_whatever_the_locale(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert translate("grüße".encode(), "--server", server) == (0, "GRÜSSE\n".encode(), "")


def test_an_interactive_line_is_answered_before_the_next_is_typed(server: str) -> None:
    with start("--server", server) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in (b"one", b"two"):
            process.stdin.write(text + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == text.upper() + b"\n"


def test_a_refused_line_is_named_after_the_lines_before_it(server: str) -> None:
    status, output, errors = translate(b"one\n\ninvalid\nfour\n", "--server", server)
    assert (status, output) == (1, b"ONE\n\n")
    assert errors == "dragoman translate: line 3: INVALID_ARGUMENT: text[0]: not this one\n"


def test_a_line_that_is_not_utf_8_is_named(server: str) -> None:
    status, output, errors = translate(b"one\nab\xff\n", "--server", server)
    assert (status, output) == (1, b"ONE\n")
    assert errors == "dragoman translate: line 2: byte 0xff at offset 2, expected UTF-8\n"


def test_a_full_queue_is_tried_again(server: str, servicer: CapitalsServicer) -> None:
    assert translate(b"busy\n", "--server", server) == (0, b"BUSY\n", "")
    assert servicer.texts == ["busy", "busy"]


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    status, output, errors = translate(b"one\n", "--server", "127.0.0.1:1")
    assert (status, output) == (1, b"")
    assert errors.startswith("dragoman translate: line 1: UNAVAILABLE: ")
    assert errors.count("\n") == 1


def test_a_closed_output_ends_it_quietly(server: str) -> None:
    """Endless input and a reader that takes one line: the process ends without a message."""
    endless = Popen(["/usr/bin/yes", "one"], stdout=PIPE)
    with endless, start("--server", server, stdin=endless.stdout) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ONE\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_SECONDS) == 0
        assert process.stderr.read() == b""
        endless.kill()


def test_an_interrupt_ends_it_quietly_with_130(server: str) -> None:
    with start("--server", server) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ONE\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 130
        assert process.stderr.read() == b""


def test_a_stream_writes_the_same_lines(server: str) -> None:
    content = "one\n\ngrüße\n \ntwo".encode()
    assert translate(content, "--server", server, "--stream") == (0, "ONE\n\nGRÜSSE\n\nTWO\n".encode(), "")


def test_a_stream_shows_a_translation_while_it_grows(server: str, servicer: CapitalsServicer) -> None:
    """The server sends the second letter only after the first one is written."""
    with start("--server", server, "--stream") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"slow\n")
        process.stdin.flush()
        assert os.read(process.stdout.fileno(), 100) == b"S"
        servicer.letter_taken.set()
        process.stdin.close()
        assert process.stdout.read() == b"LOW\n"


def test_a_stream_that_fails_names_its_line(server: str) -> None:
    status, output, errors = translate(b"one\ntw!o\nthree\n", "--server", server, "--stream")
    assert (status, output) == (1, b"ONE\nTW")
    assert errors == "dragoman translate: line 2: INTERNAL: the translation failed inside the server\n"


def test_a_stream_has_no_scores(server: str) -> None:
    status, output, errors = translate(b"one\n", "--server", server, "--stream", "--scores")
    assert (status, output) == (1, b"")
    assert errors.startswith("dragoman translate: --stream, --scores: ")


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


@contextmanager
def fake_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaces the graphs, which the bundle lacks, by fake models."""
    with monkeypatch.context() as patch:
        patch.setattr("serve.app.load_models", lambda settings, _: [FakeModel(settings.slots)])
        yield


def test_a_server_with_tls_and_keys_is_asked_as_it_wants(
    bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    settings = {**authority.settings(), "tls_client_ca_file": authority.file, "api_keys": "secret"}
    mine = authority.issue("client", "somebody")
    with run_service(bundle_path, **settings) as live:
        options = ["--server", live.grpc_target, "--tls-ca-file", str(authority.file)]
        options += ["--tls-certificate-file", str(mine["certificate"]), "--tls-key-file", str(mine["key"])]
        status, output, errors = translate(b"alpha\n", *options)
        expected = "dragoman translate: line 1: UNAUTHENTICATED: authorization: expected `Bearer` and a key\n"
        assert (status, output, errors) == (1, b"", expected)
        monkeypatch.setenv("DRAGOMAN_TRANSLATE_API_KEY", "secret")
        status, output, errors = translate(b"alpha\n", *options)
        assert (status, output.count(b"\n"), errors) == (0, 1, "")


def test_a_file_for_tls_that_is_not_there_is_named() -> None:
    status, _, errors = translate(b"", "--server", "127.0.0.1:1", "--tls-ca-file", "none.pem")
    assert (status, errors) == (1, "dragoman translate: --tls-ca-file: none.pem: No such file or directory\n")


def translate_in_process(
    bundle_path: Path, texts: Sequence[str], **wanted: Unpack[Wanted]
) -> list[TranslatedText | None]:
    async def lines() -> AsyncIterator[Line]:
        for number, text in enumerate(texts, start=1):
            yield Line(number, text.encode())

    async def collect() -> list[TranslatedText | None]:
        command = ServeSettings(bundle=bundle_path, slots=2, engines=1, queue_limit=8)
        async with LocalTranslator.open(command, TIMEOUT_SECONDS) as translator:
            translations = translate_lines(partial(translator.translate, **wanted), lines(), in_flight=8)
            return [translation async for translation in translations]

    return asyncio.run(collect())


def test_a_bundle_translates_without_a_server(
    bundle_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each output line equals the fake model's translation of that line alone."""
    texts = [f"{word} beta gamma." for word in ("one", "two", "three", "house", "garden")] * 4
    with fake_models(monkeypatch):
        translations = translate_in_process(bundle_path, texts)
    for text, translation in zip(texts, translations, strict=True):
        target_ids, score, _ = translate_alone((*tokenizer.encode(text), EOS_ID), MAX_TARGET_TOKENS)
        assert translation is not None
        assert translation.text == tokenizer.decode(target_ids)
        assert translation.score == pytest.approx(score, rel=1e-5)


def test_lines_of_many_sentences_wait_for_places(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line needs as many rows as it has sentences; together many times the available rows."""
    text = "alpha. beta. alpha beta. beta alpha."
    with fake_models(monkeypatch):
        translations = translate_in_process(bundle_path, [text] * 16)
    assert len({each.text for each in translations if each is not None}) == 1
    assert len(translations) == 16


def test_a_folder_of_bundles_translates_by_way_of_a_pivot(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_bundle(tmp_path / "a", tokenizer, direction("fr-en", 7))
    put_bundle(tmp_path / "b", tokenizer, direction("en-de", 8))

    async def ask() -> str:
        async with LocalTranslator.open(ServeSettings(bundle=tmp_path, slots=2, engines=1), TIMEOUT_SECONDS) as local:
            answer = await local.translate(LONG_TEXT, source_language="fr", target_language="de", allow_pivot=True)
        return answer.text

    with fake_models(monkeypatch):
        text = asyncio.run(ask())
    between = LONG_TEXT
    for prefix in (7, 8):
        source_ids = (prefix, *tokenizer.encode(between), EOS_ID)
        between = tokenizer.decode(translate_alone(source_ids, MAX_TARGET_TOKENS)[0])
    assert text == between


def test_a_bundle_streams_without_a_server(
    bundle_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lines() -> AsyncIterator[Line]:
        yield Line(1, LONG_TEXT.encode())
        yield Line(2, b"alpha " * 200)

    async def collect() -> list[str]:
        pieces: list[str] = []
        command = ServeSettings(bundle=bundle_path, slots=2, engines=1, queue_limit=8)
        async with LocalTranslator.open(command, TIMEOUT_SECONDS) as translator:
            streamed = stream_lines(partial(translator.stream, split_sentences=False), lines())
            while not pieces or pieces[-1] != "\n":
                pieces.append(await anext(streamed))
            with pytest.raises(LineError, match=r"line 2: invalid: text\[0\]: .* tokens, expected"):
                await anext(streamed)
        return pieces

    with fake_models(monkeypatch):
        pieces = asyncio.run(collect())
    target_ids, _, _ = translate_alone((*tokenizer.encode(LONG_TEXT), EOS_ID), MAX_TARGET_TOKENS)
    assert "".join(pieces) == tokenizer.decode(target_ids) + "\n"


def test_a_bundle_searches_as_the_options_say(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_models(monkeypatch):
        (free,), (limited,) = (
            translate_in_process(bundle_path, [LONG_TEXT], options=options)
            for options in (SearchFields(), SearchFields(max_target_tokens=1))
        )
    assert free is not None
    assert limited is not None
    assert len(limited.text) < len(free.text)


def test_an_option_that_the_model_cannot_serve_is_named(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "line 1: invalid: options.beam_size: 3, expected at most 2"
    with fake_models(monkeypatch), pytest.raises(LineError, match=expected):
        translate_in_process(bundle_path, ["one"], options=SearchFields(beam_size=3))


def test_a_text_that_the_model_cannot_take_is_named_by_its_line(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_models(monkeypatch), pytest.raises(LineError, match=r"line 2: invalid: text\[0\]: .* tokens, expected"):
        translate_in_process(bundle_path, ["one", "alpha " * 200], split_sentences=False)


def test_a_folder_that_is_no_bundle_is_one_clear_line(tmp_path: Path) -> None:
    status, output, errors = translate(b"one\n", "--bundle", str(tmp_path))
    assert (status, output) == (1, b"")
    assert errors.startswith(f"dragoman translate: {tmp_path}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "given"), [((), "neither"), (("--server", "localhost:1", "--bundle", os.devnull), "both")]
)
def test_exactly_one_of_server_and_bundle_is_expected(options: tuple[str, ...], given: str) -> None:
    status, output, errors = translate(b"", *options)
    assert (status, output) == (1, b"")
    assert errors.startswith("dragoman translate: --server, --bundle: ")
    assert given in errors
