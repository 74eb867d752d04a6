"""`dragoman translate` with the name of a model that is not a part of a bundle or server."""

import sys

from dragoman.model.errors import UsageError
from dragoman.serve.clients.translate import TranslateCommand

NO_MODEL = "--model, --bundle, --server: expected one of them, as --model en-de"


class TranslateByNameCommand(TranslateCommand):
    """Translate files and folders, or standard input line by line or as one document.

    A translated file goes into the folder --out, or next to its source with the target language in its name. Of a
    folder, all files below it are translated, and --out gets the same subfolders. If a file fails, the others go on,
    and the exit status is 1.

    From standard input, writes one translation per line, in input order; blank lines stay blank. With --alignments, a
    tab and the links follow, such as 0:3-0:5: characters of the line and of its translation. Stops with exit status 1
    at the first line that cannot be translated and names it. Without --server and --bundle, --model is a name as for
    `dragoman pull`.
    """

    def cli_cmd(self) -> None:
        """Installs the model if only its name is given, and translates."""
        if self.server is not None or self.bundle is not None:
            super().cli_cmd()
            return
        if not self.model:
            raise UsageError(NO_MODEL)
        from dragoman.hub.install import find_bundle  # noqa: PLC0415 - keeps --help quick
        from dragoman.hub.progress import reported_to  # noqa: PLC0415

        # Standard output is for translations.
        with reported_to(sys.stderr):
            folder = find_bundle([self.model])
        TranslateCommand.model_construct(**{**dict(self), "bundle": folder, "model": ""}).cli_cmd()
