"""`python -m dragoman.hub.fetch NAME BYTES`: installs a model within a limit, in a process with a lower priority.

A conversion therefore takes no time and no memory of the server's process. The cache has the progress of the download.
The installation ends with the server, even if the server is killed; the next one continues the download.
"""

import signal
import sys

from dragoman.hub.install import install
from dragoman.hub.progress import watched
from dragoman.hub.store import Store
from dragoman.model.errors import UserError
from dragoman.serve.sandbox.worker import end_with_parent


def main(name: str, max_bytes: int) -> None:
    """Installs a model within a limit of all models together; raises SystemExit with one line if that fails."""
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        store = Store.of_user()
        with store.fetching(name, max_bytes) as show:
            show(0, None)  # Other processes see also a fetch that fails before its download.
            with watched(show):
                install(store, name)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
