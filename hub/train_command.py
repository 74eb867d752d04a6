"""`dragoman train` with what a model alone does not read: bundles, public models and their names, and memories."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from pydantic import Field

from dragoman.hub.names import ArgosModel, HubError, HubModel, LanguagePair, LocalModel, parse_name
from dragoman.model.config import Direction
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.samples import Sample
from dragoman.model.training.train import TrainCommand

# The license of a downloaded model, as its hub states it.
LICENSE_FILE = "license.txt"


class TrainFurtherCommand(TrainCommand):  # noqa: D101 - as TrainCommand
    __doc__ = TrainCommand.__doc__

    state_dir: Path | None = Field(None, description="folder of the server, for memory:NAME; else $DRAGOMAN_STATE_DIR")

    def cli_cmd(self) -> None:
        """Trains a model."""
        from dragoman.export.further.pairs import as_tables  # noqa: PLC0415 - keeps --help quick

        given = (self.data, self.validation, self.base_validation)
        with as_tables([one for part in given for one in part], self.state_dir) as tables:
            left = iter(tables)
            data, validation, base = (tuple(next(left) for _ in part) for part in given)
            changed = self.model_copy(update={"data": data, "validation": validation, "base_validation": base})
            TrainCommand.cli_cmd(changed)

    def read_initial(self, path: Path, directions: Sequence[Direction]) -> tuple[TrainedModel, list[Sample]]:
        """Reads the model that the training starts with, and its samples; raises UserError if it cannot be trained."""
        from dragoman.export.further.imported import read_public  # noqa: PLC0415 - keeps --help quick
        from dragoman.export.origin import read_trained  # noqa: PLC0415

        reference = parse_name(str(path))
        if not isinstance(reference, LocalModel):
            folder = self._download(reference)
            return read_public(folder, directions, (folder / LICENSE_FILE).read_text(encoding="utf-8"))
        if reference.is_bundle:
            return read_trained(reference.path)
        if RunFolder(path).config.is_file():
            return super().read_initial(path, directions)
        return read_public(reference.path, directions)

    def _download(self, reference: HubModel | LanguagePair) -> Path:
        """Returns a folder of the run with the files of a named model, which it downloads once; raises HubError."""
        from dragoman.hub.catalog import choose  # noqa: PLC0415
        from dragoman.hub.convert import MAX_LICENSE_CHARACTERS  # noqa: PLC0415
        from dragoman.hub.install import find_offer  # noqa: PLC0415
        from dragoman.hub.licenses import describe_license  # noqa: PLC0415
        from dragoman.hub.progress import report  # noqa: PLC0415
        from dragoman.hub.store import Store  # noqa: PLC0415

        folder, store = self.out / "initial" / quote(str(reference), safe=""), Store.of_user()
        if not folder.exists():
            model = choose(store, reference)[0] if isinstance(reference, LanguagePair) else reference
            if isinstance(model, ArgosModel):
                raise HubError(f"{model}: cannot be trained further, expected OWNER/NAME or firefox:SOURCE-TARGET")
            offer, part = find_offer(store, model), folder.with_name(f"{folder.name}.part")
            report(f"{model}: {describe_license(offer.license)}")
            offer.fetch(part)
            (part / LICENSE_FILE).write_text((offer.license or "")[:MAX_LICENSE_CHARACTERS], encoding="utf-8")
            part.rename(folder)
        return folder
