"""Each round starts every system anew, then all take turns at each task; each round begins with another system."""

from pathlib import Path

import pytest
from tqdm import tqdm

from benchmarks.harness.process import Launch, SystemFailedError
from benchmarks.harness.rounds import Player, Round, play, steps_of

TASKS = {"few": {"tokens": 1}, "many": {"tokens": 9}}


def make_players(log: Path, tasks: dict[str, dict[str, int]]) -> list[Player]:
    launches = [
        Launch(name, "tests.support.turn_taker:TurnTaker", {"name": name, "log": str(log)}) for name in ("a", "b")
    ]
    return [Player(launch, tasks) for launch in launches]


@pytest.fixture(scope="module", name="log")
def _log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rounds") / "log"


@pytest.fixture(scope="module", name="played")
def _played(log: Path) -> dict[str, list[Round]]:
    with tqdm(total=steps_of(2, len(TASKS), 2), disable=True) as progress:
        return play(make_players(log, TASKS), rounds=2, seconds=0, progress=progress)


@pytest.mark.usefixtures("played")
def test_systems_take_turns_and_every_round_begins_with_another_one(log: Path) -> None:
    first = ["a starts", "b starts", "a 1", "b 1", "a 9", "b 9"]
    second = ["b starts", "a starts", "b 1", "a 1", "b 9", "a 9"]
    assert log.read_text(encoding="utf-8").splitlines() == first + second


def test_every_system_has_a_figure_of_every_task_in_every_round(played: dict[str, list[Round]]) -> None:
    assert {name: [list(each.tokens_per_second) for each in rounds] for name, rounds in played.items()} == {
        name: [["few", "many"]] * 2 for name in ("a", "b")
    }
    assert all(
        each.load_seconds > 0
        and each.peak_bytes > 0
        and min(each.tokens_per_second.values()) > 0
        and min(each.seconds.values()) > 0
        for rounds in played.values()
        for each in rounds
    )


class Counter:
    """A progress bar that counts."""

    def __init__(self) -> None:
        self.steps = 0.0

    def update(self, n: float = 1) -> None:
        self.steps += n


def test_the_progress_bar_reaches_its_total(tmp_path: Path) -> None:
    counter = Counter()
    play(make_players(tmp_path / "log", TASKS), rounds=1, seconds=0, progress=counter)
    assert counter.steps == steps_of(2, len(TASKS), 1)


def test_a_system_that_fails_in_its_turn_is_reported_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(SystemFailedError, match=r"^a: TypeError: .* unexpected keyword argument 'rows'"):
        play(make_players(tmp_path / "log", {"x": {"rows": 1}}), rounds=1, seconds=0, progress=Counter())
