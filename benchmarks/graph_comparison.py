"""Measures all systems of one model, as `dragoman bench graphs` does: writes their files, lets them take turns.

The files are in a temporary folder and gone afterwards. Knows no options and no tables.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.graph_quality import measure_quality
from benchmarks.graph_results import ModelResult, SystemResult, Workload
from benchmarks.graphs import GraphSystem
from benchmarks.harness.rounds import Player, Progress, play, steps_of
from benchmarks.systems.compared_model import ComparedModel
from model.data.corpus import Corpus
from model.scoring import Measure


def steps_of_model(systems: int, workload: Workload, *, quality: bool) -> int:
    """Returns how many steps `compare_systems` tells a progress bar."""
    return systems * (2 if quality else 1) + steps_of(systems, len(workload.tasks()), workload.rounds)


def compare_systems(
    model: ComparedModel, systems: Sequence[GraphSystem], workload: Workload, corpus: Corpus | None, progress: Progress
) -> ModelResult:
    """Measures all systems of a model.

    Args:
        model: whose weights they hold.
        systems: which.
        workload: what they do.
        corpus: what they translate to measure the quality, if it is to be measured.
        progress: is told each step.

    Raises:
        CorpusError: if the model cannot translate the corpus.
        RunError: if a bundle cannot be made.
        SystemFailedError: if a system fails.
    """
    with TemporaryDirectory(prefix="dragoman-") as workshop:
        folders = {system.name: Path(workshop) / system.name for system in systems}
        bleu: dict[str, Measure] = {}
        for system in systems:
            system.write(model, folders[system.name])
            progress.update()
            if corpus is not None:
                bleu[system.name] = measure_quality(model, corpus, system, folders[system.name], workload.threads)
                progress.update()
        players = [
            Player(system.launch(folders[system.name], workload.threads, max(workload.rows)), workload.tasks())
            for system in systems
        ]
        played = play(players, rounds=workload.rounds, seconds=workload.turn_seconds, progress=progress)
        return ModelResult(
            model.name,
            model.describe(),
            [
                SystemResult(
                    system.name,
                    system.peer,
                    sum(path.stat().st_size for path in folders[system.name].iterdir()),
                    played[system.name],
                    bleu.get(system.name),
                )
                for system in systems
            ],
        )
