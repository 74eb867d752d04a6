"""`dragoman train` from a bundle."""

from pathlib import Path

from dragoman.model.run import TrainedModel
from dragoman.model.samples import Sample
from dragoman.model.training.train import TrainCommand


class TrainFromBundleCommand(TrainCommand):  # noqa: D101 - as TrainCommand
    __doc__ = TrainCommand.__doc__

    def read_initial(self, path: Path) -> tuple[TrainedModel, list[Sample]]:
        """Reads the run or bundle that the training starts with, and its samples; raises as the base does."""
        from dragoman.serve.bundle.bundle import MANIFEST_FILE  # noqa: PLC0415 - keeps --help quick

        if not (path / MANIFEST_FILE).is_file():
            return super().read_initial(path)
        from dragoman.export.origin import read_trained  # noqa: PLC0415 - needs the libraries of an export

        return read_trained(path)
