"""Measures all systems of one model, as `dragoman bench offline` does: trials, then rounds together, then rounds alone.

The files are in a temporary folder and gone afterwards. Knows no options and no tables.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.agreement import Difference, differences
from benchmarks.harness.rounds import Player, Progress, Round, play, steps_of
from benchmarks.harness.system_process import Launch
from benchmarks.near_ties import narrowest_margin
from benchmarks.offline_results import SEARCHES, OfflineModelResult, OfflineResult, OfflineWorkload, Trials, best
from benchmarks.offline_systems import OfflineSystem
from benchmarks.systems.batching import Batching
from benchmarks.systems.compared_model import ComparedModel
from benchmarks.systems.source_sentence import write_sentences


def steps_of_model(systems: Sequence[OfflineSystem], workload: OfflineWorkload) -> int:
    """Returns how many steps `compare_offline` tells a progress bar."""
    searches = len(SEARCHES)
    trials = sum(steps_of(1, searches * len(_tried(system, workload)), _passes(system, workload)) for system in systems)
    together = steps_of(len(systems), searches, workload.rounds)
    alone = steps_of(len(systems) * len(workload.alone_threads), searches, workload.rounds)
    return len(systems) + trials + together + alone


def compare_offline(
    model: ComparedModel, systems: Sequence[OfflineSystem], workload: OfflineWorkload, progress: Progress
) -> OfflineModelResult:
    """Measures all systems of a model.

    Args:
        model: whose weights they hold.
        systems: which.
        workload: what they do.
        progress: is told each step.

    Raises:
        RunError: if a bundle cannot be made.
        SystemFailedError: if a system fails.
    """
    with TemporaryDirectory(prefix="dragoman-") as workshop:
        results = _Comparison(model, systems, workload, Path(workshop), progress).run()
    alone = min(workload.alone, len(workload.sentences))
    return OfflineModelResult(model.name, model.describe(), len(workload.sentences), alone, results)


class _Comparison:
    """The systems of a model, their files, and the parts of the measurement."""

    def __init__(
        self,
        model: ComparedModel,
        systems: Sequence[OfflineSystem],
        workload: OfflineWorkload,
        workshop: Path,
        progress: Progress,
    ) -> None:
        self._model = model
        self._systems = systems
        self._workload = workload
        self._workshop = workshop
        self._progress = progress
        self._sentences = workshop / "sentences.json"

    def run(self) -> list[OfflineResult]:
        """Measures, and returns the result of each system."""
        write_sentences(self._sentences, self._workload.sentences)
        for system in self._systems:
            system.write(self._model, self._workshop / system.name)
            self._progress.update()
        trials = {system.name: self._try_batchings(system) for system in self._systems}
        together = self._play_together(trials)
        alone = self._play_alone()
        return [
            OfflineResult(
                system.maker,
                system.precision,
                trials[system.name],
                together[system.name],
                alone[system.name],
                self._differences(system),
            )
            for system in self._systems
        ]

    def _try_batchings(self, system: OfflineSystem) -> Trials:
        """Translates with each batching, and keeps the translations."""
        names = {
            (search, str(batching)): f"{search}, {batching}"
            for search in SEARCHES
            for batching in _tried(system, self._workload)
        }
        tasks = {
            name: _task(search, batching, output=str(self._translations(system, search)))
            for (search, batching), name in names.items()
        }
        launch = self._launch(system)
        tried = self._play([Player(launch, tasks)], _passes(system, self._workload))[launch.name]
        trials: Trials = {search: {} for search in SEARCHES}
        for (search, batching), name in names.items():
            trials[search][batching] = [each.tokens_per_second[name] for each in tried]
        return trials

    def _play_together(self, trials: Mapping[str, Trials]) -> dict[str, list[Round]]:
        players = {
            system.name: Player(
                self._launch(system),
                {search: _task(search, best(tried)) for search, tried in trials[system.name].items()},
            )
            for system in self._systems
        }
        played = self._play(list(players.values()), self._workload.rounds)
        return {name: played[player.launch.name] for name, player in players.items()}

    def _play_alone(self) -> dict[str, dict[int, list[Round]]]:
        players = {
            (system.name, threads): Player(
                system.launch(self._workshop / system.name, self._sentences, copies=1, threads=threads),
                {
                    # Of one sentence there is one batch, in any batching.
                    search: _task(search, str(_tried(system, self._workload)[0]), alone=self._workload.alone)
                    for search in SEARCHES
                },
            )
            for system in self._systems
            for threads in self._workload.alone_threads
        }
        played = self._play(list(players.values()), self._workload.rounds)
        found: dict[str, dict[int, list[Round]]] = {system.name: {} for system in self._systems}
        for (name, threads), player in players.items():
            found[name][threads] = played[player.launch.name]
        return found

    def _play(self, players: Sequence[Player], rounds: int) -> dict[str, list[Round]]:
        return play(players, rounds=rounds, seconds=None, progress=self._progress)

    def _launch(self, system: OfflineSystem) -> Launch:
        engines, threads = self._workload.engines, self._workload.threads
        # For a peer, copies of one thread are what serves best; ours has what the server has.
        copies, threads = (engines * threads, 1) if system.batched else (engines, threads)
        return system.launch(self._workshop / system.name, self._sentences, copies, threads)

    def _differences(self, system: OfflineSystem) -> dict[str, list[Difference]] | None:
        """Compares a system with CTranslate2, where both compute in floats and the model ends by itself."""
        peer = next((each for each in self._systems if each.maker == "ctranslate2" and each.precision == "fp32"), None)
        if peer is None or peer is system or system.precision != "fp32" or not self._model.trained:
            return None
        found = {}
        for search, beam_size in SEARCHES.items():
            ours, theirs = (json.loads(self._translations(each, search).read_bytes()) for each in (system, peer))
            found[search] = differences(ours, theirs, partial(self._margin, beam_size))
        return found

    def _margin(self, beam_size: int, place: int) -> float:
        return narrowest_margin(self._model.model, self._workload.sentences[place].source_ids, beam_size)

    def _translations(self, system: OfflineSystem, search: str) -> Path:
        return self._workshop / f"{system.name}, {search}.json"


def _tried(system: OfflineSystem, workload: OfflineWorkload) -> tuple[Batching, ...]:
    """Returns the batchings to try."""
    return workload.batchings if system.batched else workload.rows


def _passes(system: OfflineSystem, workload: OfflineWorkload) -> int:
    """Returns how often each of them is tried: a single one, of which nothing is chosen, once for its translations."""
    return workload.trials if len(_tried(system, workload)) > 1 else 1


def _task(search: str, batching: str, **options: Any) -> dict[str, Any]:
    """Returns what `benchmarks.systems.translating` takes as a task."""
    return {"beam_size": SEARCHES[search], "batching": batching, **options}
