"""Baseline servers: their requests, sent by the load generator's client, and their command lines."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks.online import BenchOnlineCommand, ServedModel, command_of, settings_of, systems_of
from benchmarks.online_server import BaselineApi, BaselineServer
from benchmarks.systems.translating import Batching, SourceSentence, Translator
from loadtest.clients import OK, TRANSLATE_PATH, Targets, open_clients
from loadtest.scenario import LoadRequest
from model.tokenizer.tokenizer import EOS_ID, Tokenizer


class Parrot(Translator):
    """Translates each source into itself, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        del batching
        self.asked.append((len(sentences), beam_size))
        return [sentence.source_ids[:-1] for sentence in sentences]


@pytest.fixture(name="server")
def _server(tokenizer: Tokenizer, tmp_path: Path) -> BaselineServer:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model)
    return BaselineServer(
        port=0,
        translator="unused",
        options={},
        tokenizer=path,
        prefix=(),
        suffix=(EOS_ID,),
        longest=20,
        beam_size=4,
        size=8,
        window_seconds=0.01,
        workers=1,
        waiting=8,
    )


def ask(server: BaselineServer, parrot: Parrot, *requests: LoadRequest) -> list[str]:
    async def run() -> list[str]:
        api = BaselineApi(server, parrot)
        app = web.Application()
        app.router.add_post(TRANSLATE_PATH, api.translate)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        batching = asyncio.create_task(api.batcher.run())
        async with open_clients(Targets("", f"http://127.0.0.1:{runner.addresses[0][1]}"), {"rest"}) as client:
            answers = await asyncio.gather(*map(client.send, requests))
        batching.cancel()
        await runner.cleanup()
        return [answer.outcome for answer in answers]

    return asyncio.run(run())


def request(*texts: str, beam_size: int = 4) -> LoadRequest:
    return LoadRequest(texts, "rest", options={"beam_size": beam_size})


def test_requests_share_a_batch(server: BaselineServer) -> None:
    parrot = Parrot()
    assert ask(server, parrot, request("alpha beta."), request("one.", "two.")) == [OK, OK]
    assert sum(count for count, _ in parrot.asked) == 3
    assert {beam_size for _, beam_size in parrot.asked} == {4}


def test_another_beam_size_is_rejected(server: BaselineServer) -> None:
    assert ask(server, Parrot(), request("alpha.", beam_size=1)) == ["400 invalid"]


def test_requests_beyond_the_queue_are_rejected(server: BaselineServer) -> None:
    assert ask(server, Parrot(), request(*["alpha."] * 9)) == ["429 queue_full"]


def make_options(**options: object) -> BenchOnlineCommand:
    return BenchOnlineCommand.model_validate({"run": "run", "out": "out", **options})


def test_all_servers_have_as_many_threads_as_cpus(tmp_path: Path) -> None:
    options = make_options(server_cpus=(0, 1))
    model = ServedModel(tmp_path, tmp_path / "tokenizer.model", (), (EOS_ID,), 20)
    for system in systems_of(options):
        for setting in settings_of(system, options):
            assert setting.copies * setting.threads == 2
            assert command_of(system, setting, (1, 2), beam_size=1, model=model, options=options)


def test_every_window_and_shape_of_a_baseline_is_tried() -> None:
    options = make_options(server_cpus=(0, 1), windows_ms=(2, 5))
    assert len(settings_of("ctranslate2", options)) == 4
    assert len(settings_of("pytorch", options)) == 2
    assert len(settings_of("dragoman", options)) == 1


def test_static_batches_have_a_slot_for_every_row(tmp_path: Path) -> None:
    options = make_options(batch_size=16)
    model = ServedModel(tmp_path, tmp_path / "tokenizer.model", (), (EOS_ID,), 20)
    setting = settings_of("onnx", options)[0]
    command = command_of("onnx", setting, (1, 2), beam_size=4, model=model, options=options)
    assert BaselineServer.model_validate_json(command[-1]).options["slots"] == 64
