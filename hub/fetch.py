"""`python -m dragoman.hub.fetch NAME`: installs a model that is not installed, in a process with a lower priority.

The process of the server has no work and no memory of a conversion. The cache has the progress of the download. The
installation ends with the server, however that ends; the next one continues the download.
"""

import os
import signal
import sys

from dragoman.hub.install import install
from dragoman.hub.progress import watched
from dragoman.hub.store import Store
from dragoman.model.errors import UserError
from dragoman.serve.sandbox.worker import end_with_parent

# A server and its engines come first; a fetch next to busy ones still gets a fourth of a processor.
NICENESS = 5


def main(name: str) -> None:
    """Installs a model; raises SystemExit with one line if that fails."""
    end_with_parent()
    os.nice(NICENESS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        store = Store.of_user()
        with store.fetching(name) as show, watched(show):
            install(store, name)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
