"""The native runtime asks its graphs for what a step needs, shares sources, and copies only filled blocks."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.runtime import native
from dragoman.serve.runtime.model import NO_ROWS
from dragoman.serve.runtime.native import NativeRuntime, NativeScores, NativeSessions
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.processes import resident_bytes
from tests.support.stepping import each

ROWS, MIN_TOKENS, MAX_TOKENS = 5, 3, 12


@pytest.fixture(scope="module", params=["wide_bundle", "int8_bundle"])
def sessions(request: pytest.FixtureRequest) -> NativeSessions:
    bundle: Bundle = request.getfixturevalue(request.param)
    loaded = load_sessions(bundle, threads=1)
    assert isinstance(loaded, NativeSessions)
    return loaded


class Steps:
    """A runtime whose rows have different sources, and that steps with random tokens."""

    def __init__(self, sessions: NativeSessions) -> None:
        self.runtime = sessions.runtime(ROWS)
        self.lengths = np.linspace(MIN_TOKENS, MAX_TOKENS, ROWS).astype(np.int32)
        self._random = np.random.default_rng(3)
        self._positions = count()
        self.runtime.encode(self._random.integers(4, 30, (ROWS, MAX_TOKENS)), self.lengths, each(range(ROWS)))

    def step(self, scored_rows: NDArray[np.int64] = NO_ROWS, best_count: int = 1) -> NativeScores:
        positions = np.full(ROWS, next(self._positions), np.int32)
        tokens = self._random.integers(4, 30, ROWS)
        return self.runtime.step(ALL, tokens, positions, self.lengths, scored_rows=scored_rows, best_count=best_count)


ALL = np.arange(ROWS)


def bits(best: tuple[NDArray[np.float32], NDArray[np.int64]]) -> tuple[bytes, bytes]:
    return best[0].tobytes(), best[1].tobytes()


@pytest.mark.parametrize("scored", [[], [0], [4], [1, 3], [0, 1, 2], [0, 1, 2, 3, 4]])
def test_scored_rows_have_logits_and_all_rows_their_best_tokens(sessions: NativeSessions, scored: list[int]) -> None:
    every, some = Steps(sessions), Steps(sessions)
    for _ in range(3):
        expected = every.step(ALL, best_count=6)
        logits = expected.fetch(ALL)
        actual = some.step(np.array(scored, np.int64), best_count=6)
        assert actual.fetch(np.array(scored, np.int64)).tobytes() == logits[scored].tobytes()
        assert bits(actual.best(ALL, 6)) == bits(expected.best(ALL, 6))


def test_the_best_tokens_are_those_of_the_logits(sessions: NativeSessions) -> None:
    scores = Steps(sessions).step(ALL, best_count=8)
    logits = scores.fetch(ALL)
    order = np.argsort(-logits, axis=1, kind="stable")
    best, token_ids = scores.best(ALL, 8)
    assert token_ids.tolist() == order[:, :8].tolist()
    sums = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    for rank in range(8):
        of = scores.of(ALL, token_ids[:, rank])
        assert of.tobytes() == best[:, rank].tobytes()
        assert of == pytest.approx(logits[ALL, token_ids[:, rank]] - sums, abs=1e-5)


def test_changed_logits_have_the_bits_of_a_step_where_nothing_changed(sessions: NativeSessions) -> None:
    scores = Steps(sessions).step(ALL, best_count=4)
    before = bits(scores.best(ALL, 4))
    scores.store(ALL, scores.fetch(ALL))
    assert bits(scores.best(ALL, 4)) == before


def test_a_changed_row_is_chosen_again_and_the_others_are_not(sessions: NativeSessions) -> None:
    rows = np.array([1, 3])
    scores = Steps(sessions).step(rows, best_count=4)
    before, ids = scores.best(ALL, 4)
    logits = scores.fetch(rows)
    logits[0, ids[1, 0]] = -np.inf
    logits[1] = np.nan
    scores.store(rows, logits)
    after, chosen = scores.best(ALL, 4)
    assert chosen[1, :3].tolist() == ids[1, 1:].tolist()
    assert (after[1, :3] > before[1, 1:]).all()
    assert np.isnan(after[3]).all()
    assert (chosen[3] < sessions.manifest.vocabulary_size).all()
    others = [0, 2, 4]
    assert after[others].tobytes() == before[others].tobytes()


def test_more_best_tokens_than_there_are_is_all_of_them(sessions: NativeSessions) -> None:
    assert Steps(sessions).step(best_count=1000).best(ALL, 1000)[1].shape == (ROWS, sessions.manifest.vocabulary_size)


def test_rows_of_a_source_read_one_slot(sessions: NativeSessions) -> None:
    """As the hypotheses of a beam; then all of them continue as a lone row does."""
    one, many = Steps(sessions), Steps(sessions)
    ids = np.array([[7, 8, 9, 3]])
    lengths = np.full(ROWS, 4, np.int32)
    one.runtime.encode(ids, lengths[:1], [[2]])
    many.runtime.encode(ids, lengths[:1], [[3, 0, 1, 2, 4]])
    assert len(set(many.runtime._source_slots)) == 1
    for position in range(3):
        tokens, positions = np.full(ROWS, 5 + position), np.full(ROWS, position, np.int32)
        expected = one.runtime.step(ALL[2:3], tokens[:1], positions[:1], lengths[:1]).best(ALL[2:3], 1)[0]
        actual = many.runtime.step(ALL, tokens, positions, lengths).best(ALL, 1)[0]
        assert {item.tobytes() for item in actual} == {expected.tobytes()}


def test_only_filled_blocks_are_copied(sessions: NativeSessions) -> None:
    steps = Steps(sessions)
    steps.step()
    for array in steps.runtime._targets.values():
        array[:, :, 1:] = 7
        array[1] = 9
    steps.runtime.branch_rows([0], [1], [1])
    for array in steps.runtime._targets.values():
        assert array[1, :, 0].tobytes() == array[0, :, 0].tobytes()
        assert (array[1, :, 1:] == 9).all()


def test_a_step_for_one_row_commits_a_few_pages(wide_bundle: Bundle) -> None:
    """The caches of all slots would take 100 MB; a graph that copied them would need them all."""
    loaded = load_sessions(wide_bundle, threads=1)
    assert isinstance(loaded, NativeSessions)
    runtime = loaded.runtime(512)
    assert sum(array.nbytes for array in (*runtime._targets.values(), *runtime._sources.values())) > 100 * 2**20
    before = resident_bytes()
    runtime.encode(np.array([[5, 6, 3]]), np.array([3], np.int32), [[300]])
    for position in range(3):
        runtime.step(np.array([300]), np.array([5]), np.array([position], np.int32), np.array([3], np.int32))
    assert resident_bytes() - before < 16 * 2**20


def test_the_number_of_bindings_is_bounded(sessions: NativeSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MAX_BINDINGS", 3)
    steps = Steps(sessions)
    for count_of_best in range(1, 9):
        assert steps.step(best_count=count_of_best).best(ALL, count_of_best)[0].shape == (ROWS, count_of_best)
        assert len(steps.runtime._bound) <= 3


def test_caches_as_states_and_alignments_need_native_graphs(states_bundle: Bundle) -> None:
    with_caches = replace(states_bundle, manifest=states_bundle.manifest.model_copy(update={"variant": "cpu"}))
    for aligned in (False, True):
        with pytest.raises(BundleError, match=r"states: expected native graphs .* with `dragoman export`$"):
            load_sessions(with_caches, threads=1, aligned=aligned)


def test_a_runtime_needs_a_cache(sessions: NativeSessions, states_bundle: Bundle) -> None:
    wrong = NativeSessions(states_bundle.manifest, sessions.weights, False, None, None, None)
    with pytest.raises(TypeError, match="expected native graphs"):
        NativeRuntime(wrong, 1)
