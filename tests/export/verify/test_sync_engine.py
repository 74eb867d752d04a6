"""What verifies is the service's engine, in the company that it is told to, at the times that a seed decides."""

from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.export.graph_decoder import GraphDecoder
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.native import Best, NativeRuntime, NativeScores
from dragoman.serve.runtime.placement import ModelSessions, open_sessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions
from tests.support.comparisons import ignore

SOURCES = [(*np.random.default_rng(seed).integers(4, 31, size=1 + seed % 9).tolist(), 2) for seed in range(30)]


@pytest.fixture(scope="module")
def sessions(wide_bundle: Bundle) -> ModelSessions:
    return open_sessions(wide_bundle, "cpu")


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each step of a model has."""
    counts: list[int] = []
    step = NativeRuntime.step

    def counting(self: NativeRuntime, rows: NDArray[np.int64], *given: Any, **options: Any) -> NativeScores:
        counts.append(len(rows))
        return step(self, rows, *given, **options)

    monkeypatch.setattr(NativeRuntime, "step", counting)
    return counts


def fail(*_: object) -> NoReturn:
    raise AssertionError("no logits were changed")


def specs(beam_size: int) -> list[SequenceSpec]:
    return [SequenceSpec(source, SearchOptions(max_target_tokens=24, beam_size=beam_size)) for source in SOURCES]


def test_alone_means_one_at_a_time(sessions: ModelSessions, rows: list[int]) -> None:
    SyncEngine(sessions, 3).translate(specs(3), 1, ignore)
    assert max(rows) == 3


def test_company_grows_to_what_is_wished_and_no_further(sessions: ModelSessions, rows: list[int]) -> None:
    SyncEngine(sessions, 12).translate([*specs(1), *specs(2)], 6, ignore, np.random.default_rng(1))
    assert max(rows) > 6
    assert max(rows) <= 12
    assert len(set(rows)) > 6


def test_the_seed_decides_who_joins_when(sessions: ModelSessions, rows: list[int]) -> None:
    histories = []
    for seed in (1, 1, 2):
        SyncEngine(sessions, 6).translate(specs(1), 6, ignore, np.random.default_rng(seed))
        histories.append(tuple(rows))
        rows.clear()
    assert histories[0] == histories[1] != histories[2]


def test_answers_come_in_the_order_of_the_specs_and_equal_the_graph_decoder(sessions: ModelSessions) -> None:
    done: list[int] = []
    expected = GraphDecoder(sessions).translate(SOURCES)
    assert len({answer.target_ids for answer in expected}) >= 10
    assert SyncEngine(sessions, 6).translate(specs(1), 6, done.append, np.random.default_rng(3)) == expected
    assert done == [1] * len(SOURCES)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_scored_translation_has_the_very_score_it_was_found_with(sessions: ModelSessions, beam_size: int) -> None:
    found = SyncEngine(sessions, 12).translate(specs(beam_size), 4, ignore)
    given = [
        SearchOptions(
            max_target_tokens=24,
            target_prefix=answer.target_ids,
            forced_end=len(answer.token_scores) > len(answer.target_ids),
        )
        for answer in found
    ]
    scored = [SequenceSpec(source, options) for source, options in zip(SOURCES, given, strict=True)]
    assert len({options.forced_end for options in given}) > 1
    assert SyncEngine(sessions, 12).translate(scored, 12, ignore) == found


def test_where_a_model_fails_there_is_no_translation(sessions: ModelSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sums, scores = np.full(1, np.nan, np.float32), np.full((1, 1), np.nan, np.float32)
    row = np.zeros(1, np.int64)
    broken = NativeScores(row, row, Best(sums, scores, np.zeros((1, 1), np.int64)), scores, fail)
    monkeypatch.setattr(NativeRuntime, "step", lambda *_, **__: broken)
    (answer,) = SyncEngine(sessions, 1).translate(specs(1)[:1], 1, ignore)
    assert answer.target_ids == ()
    assert np.isnan(answer.score)
