"""`dragoman bench online` measures servers in turns under the same load; the baseline batches requests in a window."""

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import grpc.aio
import pytest
from aiohttp import web

from benchmarks import online
from benchmarks.baseline_server import BaselineServer, Batcher, TextTranslator, grpc_handlers, routes
from benchmarks.harness.report import Report
from benchmarks.online import SYSTEMS, OnlinePlan, Setting, best_setting, tables_of
from benchmarks.systems.compared_model import lengths_of
from benchmarks.systems.translating import Batching, SourceSentence, Translator
from dragoman.loadtest.clients import OK, Targets, open_clients
from dragoman.loadtest.results import CapacityResult, RunResult
from dragoman.loadtest.scenario import LoadRequest, RequestKind, SearchOptions
from dragoman.model.data.corpus import read_corpus
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import EOS_ID, Tokenizer
from tests.support.cases import cases

CASES = cases(__file__)

CPUS = sorted(os.sched_getaffinity(0))
# No test reads the figures: a trial shows little more than that servers answer.
QUICK: dict[str, Any] = {"rounds": 1, "alone_seconds": 0.5, "trial_seconds": 0.5, "tolerance": 0.9, "first_rate": 32}
QUICK |= {"searches": ["greedy"], "windows_ms": [0, 1], "max_lag_seconds": 10, "slots": 8}
QUICK |= {"server_cpus": CPUS[:1], "generator_cpus": CPUS[-1:]}
# Servers are started a dozen times: minutes on a busy machine.
pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, toy_data: str) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        # The first request of a closed loop then counts, however long a busy machine takes to answer it.
        patch.setattr(online, "WARM_UP_SECONDS", 0.0)
        return OnlinePlan.model_validate({"run": toy_run.path, "data": toy_data, **QUICK}).measure()


def test_the_details_have_the_search_of_every_round(report: Report) -> None:
    (capacities,) = report.details["greedy"]["capacities"].values()
    assert {system: len(rounds) for system, rounds in capacities.items()} == {"dragoman": 1, "ctranslate2": 1}
    assert all(rounds[0]["trials"] for rounds in capacities.values())


def test_the_baseline_tries_every_window_and_dragoman_its_defaults(report: Report) -> None:
    tried = report.details["greedy"]["tried"]
    assert list(tried["dragoman"]) == ["1 x 1 threads"]
    assert list(tried["ctranslate2"]) == ["1 x 1 threads, window 0 ms", "1 x 1 threads, window 1 ms"]
    assert min(tried["ctranslate2"].values()) > 0


def test_the_bound_is_three_times_the_slower_single_request_of_dragoman_and_ctranslate2(report: Report) -> None:
    alone = [first["alone, p50, ms"] for first, *_ in report.tables[0].columns.values()]
    assert report.details["greedy"]["bounds_ms"] == pytest.approx((3 * max(alone),))


def test_the_curve_leaves_out_void_trials_and_has_ascending_shares() -> None:
    good = cast("RunResult", SimpleNamespace(goodput_per_second=10.0, void=None))
    void = cast("RunResult", SimpleNamespace(goodput_per_second=5.0, void="late"))
    found: dict[str, list[CapacityResult]] = {
        "dragoman": [CapacityResult("", 0.1, 90.0, [], [void, good], None)],
        "ctranslate2": [CapacityResult("", 0.1, None, [], [good, void], None)],
    }
    goodput, curves = tables_of("greedy", "bound", dict.fromkeys(found, 0.01), found)
    assert [first["goodput, requests/s"] for first, *_ in goodput.columns.values()] == [90.0, 0.0]
    assert curves.columns == {"dragoman": [{"0.25": 10.0}], "ctranslate2": [{"0.1": 10.0}]}
    assert curves.rows == ["0.1", "0.25"]


def test_a_void_search_has_a_note_with_its_system_round_and_reason() -> None:
    good, void = (CapacityResult("", 0.1, 90.0, [], [], reason) for reason in (None, "the generator was late"))
    alone: dict[str, float] = {"dragoman": 0.01, "ctranslate2": 0.01}
    goodput, *_ = tables_of("greedy", "bound", alone, {"dragoman": [good, void], "ctranslate2": [good, good]})
    (note,) = goodput.notes
    assert re.search(r"dragoman.* 2: .*the generator was late", note)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({(1, 2.0): 100.0, (1, 5.0): 104.0, (1, 10.0): 90.0}, (1, 2.0)),
        ({(1, 2.0): 100.0, (1, 5.0): 106.0, (1, 10.0): 110.0}, (1, 5.0)),
        ({(1, 2.0): 100.0, (2, 5.0): 150.0}, (2, 5.0)),
        ({(1, None): 0.0}, (1, None)),
    ],
)
def test_the_best_setting_is_the_fastest_and_a_longer_window_has_to_be_clearly_faster(
    rates: dict[tuple[int, float | None], float], expected: tuple[int, float | None]
) -> None:
    tried = {Setting(copies, 1, window): rate for (copies, window), rate in rates.items()}
    best = best_setting(tried)
    assert (best.copies, best.window_ms) == expected


def test_every_shape_and_window_of_the_baseline_is_tried_with_as_many_threads_as_cpus() -> None:
    plan = OnlinePlan(run=Path("run"), server_cpus=(0, 1), windows_ms=(2, 5))
    found = {system: plan.settings(system) for system in SYSTEMS}
    assert {system: len(settings) for system, settings in found.items()} == {"dragoman": 1, "ctranslate2": 4}
    assert all(setting.copies * setting.threads == 2 for settings in found.values() for setting in settings)


class Parrot(Translator):
    """Translates each source into itself, and records the lengths of the sources of its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        del beam_size, batching
        self.batches.append([len(sentence.source_ids) for sentence in sentences])
        return [sentence.source_ids[:-1] for sentence in sentences]


@pytest.fixture(name="server")
def _server(tokenizer: Tokenizer, tmp_path: Path) -> BaselineServer:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model)
    limits = {"longest": 20, "beam_size": 4, "size": 8, "window_seconds": 0.2, "workers": 1, "waiting": 100}
    words = {"tokenizer": path, "prefix": (), "suffix": (EOS_ID,), "translator": "unused", "options": {}}
    return BaselineServer.model_validate({"port": 0, "grpc_port": 0, **words, **limits})


def translate(
    server: BaselineServer, translator: Translator, lengths: Iterable[int], **changes: float
) -> list[int | BaseException]:
    """Returns the number of target tokens of sentences of some lengths that are submitted at once, or the errors."""

    async def run() -> list[int | BaseException]:
        batcher = Batcher(server.model_copy(update=changes), translator)
        running = asyncio.create_task(batcher.run())
        sentences = [SourceSentence((5,) * length, 0, 20) for length in lengths]
        answers = await asyncio.gather(*map(batcher.translate, sentences), return_exceptions=True)
        running.cancel()
        return [answer if isinstance(answer, BaseException) else len(answer) for answer in answers]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "expected"), [pytest.param(*row, id=name) for name, row in CASES["sentences share a batch"].items()]
)
def test_sentences_share_a_batch(server: BaselineServer, changes: dict[str, float], expected: list[list[int]]) -> None:
    parrot = Parrot()
    assert translate(server, parrot, range(1, 5), **changes) == [0, 1, 2, 3]
    assert parrot.batches == expected


def test_a_full_queue_rejects_at_once(server: BaselineServer) -> None:
    answers = translate(server, Parrot(), range(1, 6), waiting=2)
    assert sum(isinstance(answer, asyncio.QueueFull) for answer in answers) == 3


def test_a_canceled_request_is_not_computed(server: BaselineServer) -> None:
    parrot = Parrot()

    async def run() -> None:
        batcher = Batcher(server, parrot)
        gone = asyncio.create_task(batcher.translate(SourceSentence((5,), 0, 20)))
        await asyncio.sleep(0)
        gone.cancel()
        running = asyncio.create_task(batcher.run())
        await batcher.translate(SourceSentence((5, 5), 0, 20))
        running.cancel()

    asyncio.run(run())
    assert parrot.batches == [[2]]


def test_workers_compute_concurrently(server: BaselineServer) -> None:
    """Each of two batches waits for the other one."""
    barrier = threading.Barrier(2, timeout=60.0)

    class Meeting(Parrot):
        def translate(self, *given: Any, **named: Any) -> list[Sequence[int]]:
            barrier.wait()
            return super().translate(*given, **named)

    assert translate(server, Meeting(), (1, 2), size=1, window_seconds=0.0, workers=2) == [0, 1]


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [("rest", ["400 invalid", "429 queue_full"]), ("grpc", ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"])],
)
def test_the_baseline_answers_the_load_generator(
    server: BaselineServer, protocol: Literal["rest", "grpc"], refused: list[str]
) -> None:
    """Another beam size and more texts than the queue has places are refused."""

    async def run() -> list[str]:
        batcher = Batcher(server.model_copy(update={"waiting": 8}), Parrot())
        app, grpc_server = web.Application(), grpc.aio.server()
        app.add_routes(routes(TextTranslator(server, batcher)))
        grpc_server.add_generic_rpc_handlers((grpc_handlers(TextTranslator(server, batcher)),))
        port = grpc_server.add_insecure_port("127.0.0.1:0")
        await grpc_server.start()
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        batching = asyncio.create_task(batcher.run())
        targets = Targets(f"127.0.0.1:{port}", f"http://127.0.0.1:{runner.addresses[0][1]}")
        async with open_clients(targets, {protocol}) as client:
            kind = RequestKind(protocol=protocol)
            texts = ((4, ("alpha beta.",)), (4, ("one.", "two.")), (1, ("alpha.",)), (4, ("alpha.",) * 9))
            sent = [LoadRequest(each, kind, SearchOptions(beam_size=beam_size)) for beam_size, each in texts]
            answers = [await client.send(item) for item in sent]
        batching.cancel()
        await grpc_server.stop(None)
        await runner.cleanup()
        return [answer.outcome for answer in answers]

    assert asyncio.run(run()) == [OK, OK, *refused]


def test_a_random_model_translates_made_up_sentences_of_the_lengths_of_the_data(toy_data: str) -> None:
    shape = {"d_model": 16, "d_ff": 16, "heads": 2, "max_source_tokens": 64, "max_target_tokens": 64}
    plan = OnlinePlan.model_validate({"data": toy_data, "random": shape, "vocabulary_size": 64})
    model, corpus, longest = plan.compared()
    lengths = lengths_of(read_corpus(toy_data, "test"), None)
    assert [len(sentence.source_ids) for sentence in model.sentences(corpus)] == [source for source, _ in lengths]
    assert longest == round(sum(target for _, target in lengths) / len(lengths))
