"""The progress bar of a download. Imports `huggingface_hub`, which takes long."""

from typing import Any

from huggingface_hub.utils.tqdm import tqdm


class ProgressBar(tqdm):
    """A bar that pseudo-terminals without a size show, too; tqdm takes such a size for -1 rows and columns."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        if not self.disable and (self.nrows or 0) < 0:
            self.nrows = self.ncols = None
