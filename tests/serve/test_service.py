"""`dragoman serve` as a process, with a trained model and many concurrent clients."""

import json
import random
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.live import eventually, run_service
from tests.support.paths import ROOT
from tests.support.promises import Measured
from tests.support.served import WAIT_SECONDS, Answer, Server, serve
from tests.support.toy import spoil_bundle

CLIENTS = 64
ROUNDS = 4
WORDS = ("bird", "boat", "bread", "cloud", "door", "field", "hill", "lamp", "moon", "road", "stone", "tree")


@pytest.fixture(scope="module")
def server(toy_bundle: Path) -> Iterator[Server]:
    """A ready server with two engines."""
    with serve(toy_bundle, "--engines", "2", "--slots", "8", "--queue-limit", "500") as server:
        yield server


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """One sentence per client, of 1 to 30 words."""
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=1 + number % 30)) for number in range(CLIENTS)]


@pytest.fixture(scope="module")
def alone(server: Server, sentences: list[str]) -> dict[str, Answer]:
    """The translation of each sentence without concurrent requests."""
    before = server.company()
    answers = {sentence: server.rest(sentence)[0] for sentence in sentences}
    assert server.company() == before
    # Otherwise equal translations prove nothing.
    assert len({text for text, *_ in answers.values()}) > 0.9 * CLIENTS
    assert len({tokens for _, _, _, tokens, _ in answers.values()}) > 10
    return answers


@pytest.mark.promise("R1")
def test_a_translation_is_bitwise_independent_of_other_requests(server: Server, alone: dict[str, Answer]) -> None:
    sentences, together = list(alone), threading.Barrier(CLIENTS)
    before = server.company()

    def translate(client: int) -> list[tuple[str, Answer]]:
        send = server.grpc if client % 2 else server.rest
        mine = [sentences[(client + 7 * number) % CLIENTS] for number in range(ROUNDS)]
        together.wait(WAIT_SECONDS)
        return [(sentence, send(sentence)[0]) for sentence in mine]

    def have_company() -> bool:
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = [pair for pairs in pool.map(translate, range(CLIENTS)) for pair in pairs]
        assert len(answers) == CLIENTS * ROUNDS
        assert [(sentence, answer) for sentence, answer in answers if answer != alone[sentence]] == []
        return server.company() > before

    eventually(have_company)  # the server may be faster than its clients, and answer one request after the other
    assert server.metric("sequences_running_peak") > 1
    for name in ("sequences_running", "sequences_waiting", "inflight_requests"):
        eventually(lambda name=name: server.metric(name) == 0)  # type: ignore[misc]


def test_texts_of_one_request_are_translated_as_if_alone(server: Server, alone: dict[str, Answer]) -> None:
    assert server.rest(*alone) == server.grpc(*alone) == list(alone.values())


def test_a_page_is_translated_sentence_by_sentence(server: Server, sentences: list[str]) -> None:
    """Line breaks and white space stay; the deltas of a stream make up the same text."""
    short = [f"{sentence}." for sentence in sentences if len(sentence.split()) < 8]
    page = f"  {short[0]} {short[1]}\n\n\t{short[2]}\n{'  '.join(short[3:])}"
    answers = [translation[0] for translation in server.rest(*short)]
    expected = f"  {answers[0]} {answers[1]}\n\n\t{answers[2]}\n{'  '.join(answers[3:])}"
    assert server.rest(page)[0][0] == server.grpc(page)[0][0] == expected
    _, events = server.post({"text": page}, path="/v1/translate/stream")
    *deltas, result = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    assert "".join(delta["text"] for delta in deltas) == expected
    assert (result["translations"][0]["text"], result["translations"][0]["sentences"]) == (expected, len(short))


def test_a_too_long_sentence_is_cut_and_reported(server: Server) -> None:
    body = {"text": " ".join(["bird"] * 100)}
    (translation,) = json.loads(server.post(body)[1])["translations"]
    assert translation["sentences"] > translation["cut_sentences"] == 1
    status, problem = server.post({**body, "split_sentences": False})
    assert (status, json.loads(problem)["field"]) == (400, "text[0]")


def test_the_server_process_loads_no_torch(server: Server) -> None:
    maps = Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")
    assert "onnxruntime" in maps
    assert "libtorch" not in maps


@pytest.mark.promise("R27")
def test_the_first_request_is_as_fast_as_later_ones(toy_bundle: Path, measured: Measured) -> None:
    """The golden sentences warm the model up."""
    models = [load_sessions(Bundle.open(toy_bundle), threads=1).runtime(slots=8)]
    with run_service(toy_bundle, models) as live, live.http() as client:
        client.get("/healthz")  # opens the connection
        answers = [client.post("/v1/translate", json={"text": "bird boat."}) for _ in range(50)]
    assert {answer.status_code for answer in answers} == {200}
    first, *rest = [answer.elapsed.total_seconds() * 1000 for answer in answers]
    measured("R27", f"first request {first:.1f} ms, median of the next {len(rest)} {statistics.median(rest):.1f} ms")


@pytest.mark.promise("R22")
def test_a_signal_lets_every_accepted_request_finish(wide_bundle: Bundle, measured: Measured) -> None:
    clients = 8
    texts = [f"{first} {second} house river." for first in WORDS[:8] for second in WORDS[:8]]
    with (
        serve(wide_bundle.folder, "--engines", "1", "--slots", "2", "--queue-limit", "1000") as server,
        ThreadPoolExecutor(clients) as pool,
    ):
        futures = [pool.submit(server.grpc if client % 2 else server.rest, *texts) for client in range(clients)]
        eventually(lambda: server.metric("inflight_requests") == clients)
        server.process.send_signal(signal.SIGTERM)
        answers = [future.result(WAIT_SECONDS) for future in futures]
        assert server.process.wait(WAIT_SECONDS) == 0
    measured(
        "R22", f"{clients} requests of {len(texts)} texts in flight at the signal: {len(answers)} answered; status 0"
    )
    assert all(answer == answers[0] for answer in answers)
    events = [json.loads(line) for line in server.lines]
    (draining,) = [event for event in events if event["event"] == "draining"]
    assert draining["running"] + draining["waiting"] > 0
    assert [event["outcome"] for event in events if event["event"] == "request"] == ["ok"] * clients
    assert events[-1]["event"] == "stopped"


@pytest.fixture(scope="module")
def two_way_server(two_way_bundle: Path) -> Iterator[Server]:
    with serve(two_way_bundle, "--engines", "1", "--slots", "4") as server:
        yield server


def test_one_server_translates_in_both_directions(two_way_server: Server, two_way_bundle: Path) -> None:
    """The golden sentences match, and one text has two translations."""
    assert two_way_server.ready["directions"] == ["en-de", "de-en"]
    texts = []
    for sentence in Bundle.open(two_way_bundle).golden:
        status, body = two_way_server.post({"text": sentence.source, "target_language": sentence.target_language})
        assert status == 200
        (translation,) = json.loads(body)["translations"]
        assert (translation["text"], translation["source_tokens"]) == (sentence.target, len(sentence.source_ids))
        texts.append((sentence.source, translation["text"]))
    assert len(set(texts)) > len({source for source, _ in texts})


@pytest.mark.parametrize(("source", "target", "local"), [("en", "de", False), ("de", "en", True)])
def test_translate_uses_the_requested_direction(
    two_way_server: Server, two_way_bundle: Path, source: str, target: str, *, local: bool
) -> None:
    """Both by a server and by a bundle in the same process."""
    golden = [sentence for sentence in Bundle.open(two_way_bundle).golden if sentence.target_language == target]
    server = f"127.0.0.1:{two_way_server.ready['grpc_port']}"
    where = ("--bundle", str(two_way_bundle)) if local else ("--server", server)
    languages = ("--source-language", source, "--target-language", target)
    command = [sys.executable, "-m", "dragoman", "translate", *where, *languages]
    lines = "".join(f"{sentence.source}\n" for sentence in golden)
    result = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert result.stdout == "".join(f"{sentence.target}\n" for sentence in golden)


def test_a_model_replaced_under_load_fails_no_request(
    toy_bundle: Path, wide_bundle: Bundle, sentences: list[str], tmp_path: Path
) -> None:
    """Each translation is bitwise that of one version; afterwards all are of the last version."""
    versions = {"old": toy_bundle, "new": wide_bundle.folder}
    for name, bundle in (*versions.items(), ("changing", toy_bundle)):
        copytree(bundle, tmp_path / name)
    mine, enough, key = sentences[:5], threading.Event(), "the-key"
    versions_in_turn = ("new", "old", "new")
    options = ("--engines", "1", "--slots", "4", "--queue-limit", "500", "--admin-key", key)
    with serve(tmp_path, *options) as server, ThreadPoolExecutor(4) as pool:
        alone = {name: {item: server.rest(item, model=name)[0] for item in mine} for name in versions}
        assert all(alone["old"][item] != alone["new"][item] for item in mine)

        def translate(client: int) -> list[tuple[str, Answer]]:
            send = server.grpc if client % 2 else server.rest
            answers: list[tuple[str, Answer]] = []
            while not enough.is_set():
                answers += [(sentence, send(sentence, model="changing")[0]) for sentence in mine]
            return answers

        clients = [pool.submit(translate, client) for client in range(4)]
        for number, name in enumerate(versions_in_turn):
            copytree(versions[name], tmp_path / ".new")
            (tmp_path / "changing").rename(tmp_path / ".old")
            (tmp_path / ".new").rename(tmp_path / "changing")
            rmtree(tmp_path / ".old")
            answered = server.metric("requests_total")
            if number % 2:
                status, body = server.post({}, "/v1/admin/reload", Authorization=f"Bearer {key}")
                assert (status, json.loads(body)["replaced"]) == (200, ["changing"])
            else:
                server.process.send_signal(signal.SIGHUP)
            eventually(lambda number=number: server.metric("reloads_total") == number + 1)  # type: ignore[misc]
            eventually(lambda answered=answered: server.metric("requests_total") > answered + 12)  # type: ignore[misc]
        enough.set()
        answers = [pair for client in clients for pair in client.result(WAIT_SECONDS)]
        afterwards = {item: server.rest(item, model="changing")[0] for item in mine}
    events = [json.loads(line) for line in server.lines]
    assert {event["outcome"] for event in events if event["event"] == "request"} == {"ok"}
    assert [event["replaced"] for event in events if event["event"] == "reloaded"] == [["changing"]] * 3
    assert [pair for pair in answers if pair[1] not in (alone["old"][pair[0]], alone["new"][pair[0]])] == []
    for name in versions:
        assert any(answer == alone[name][sentence] for sentence, answer in answers)
    assert afterwards == alone["new"]


@pytest.mark.promise("R28")
def test_a_wrong_model_is_never_served_even_if_its_hash_is_in_the_manifest(toy_bundle: Path, tmp_path: Path) -> None:
    with serve(spoil_bundle(toy_bundle, tmp_path / "bundle")) as server:
        assert server.process.wait(WAIT_SECONDS) == 1
    assert not server.ready
    assert "golden sentence " in server.lines[-1]
    assert [line for line in server.lines if "Traceback" in line] == []
