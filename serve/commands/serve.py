"""The command `dragoman serve`. The service is imported only when it runs, so that `--help` is quick."""

import gc
import signal
import sys
from typing import ClassVar

from dragoman.serve.settings import ServeSettings
from dragoman.tables import described, read_table


@described(__file__)
class ServeCommand(ServeSettings):
    """Serve one bundle, or all bundles in a folder, over gRPC and REST."""

    # The groups have the order of --help.
    HELP_GROUPS: ClassVar[dict[str, str]] = read_table(__file__, "serve.yaml")["groups"]

    print_config: bool = False

    def cli_cmd(self) -> None:
        """Serves until a signal stops the process, or prints the settings."""
        if self.print_config:
            from dragoman.serve.host.config_file import write_config  # noqa: PLC0415 - few starts need YAML

            own = type(self).model_fields.keys() - ServeSettings.model_fields.keys()
            print(write_config(self, exclude=("config", *own)), end="")
            return
        # The first process of a container ignores signals without a handler; the import takes about a second.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        if self.process_count > 1:
            from dragoman.serve.supervisor.supervisor import supervise  # noqa: PLC0415 - keeps --help quick

            supervise(self)
            return
        # An import makes no garbage that is worth the collections.
        gc.disable()
        from dragoman.serve.app import serve  # noqa: PLC0415 - keeps --help quick

        gc.enable()
        serve(self)
