"""The command `dragoman serve`. The service is imported only when it runs, so that `--help` is quick."""

import signal
import sys
from argparse import ArgumentParser

from pydantic import Field

from serve.settings import ServeSettings, group_options, write_config

# What the options from one on are about, until the next; whatever is added has the company of its neighbors.
HELP_GROUPS = {
    "slots": "model",
    "max_texts": "limits of requests",
    "tls_certificate_file": "security",
    "grpc_keepalive_seconds": "gRPC connections",
    "bundle": "service",
    "admin_key": "security",
    "max_body_bytes": "limits of the service",
    "step_timeout_seconds": "life",
    "log_format": "logs and traces",
    "print_config": "other",
}


class ServeCommand(ServeSettings):
    """Serve one bundle, or all bundles in a folder, over gRPC and REST.

    Every option can be given as a flag, as an environment variable (DRAGOMAN_HTTP_PORT) or in a YAML or TOML file
    (http_port), in this order of precedence; what one model is to have of its own stands in the file, under models and
    its name. The server is ready once it has translated the golden sentences of every bundle exactly. On SIGHUP it
    reads the folder again. On SIGTERM or Ctrl-C it finishes what it accepted; a second signal stops it at once.
    """

    print_config: bool = Field(
        False, description="Print the resulting settings as a YAML file that can be read again, without secrets."
    )

    @classmethod
    def arrange_help(cls, parser: ArgumentParser) -> None:
        """Groups the options by what they are about, and tells the environment variable of each."""
        group_options(parser, cls, HELP_GROUPS)

    def cli_cmd(self) -> None:
        """Serves until a signal tells it to stop, or prints the settings."""
        if self.print_config:
            print(write_config(self, exclude=("config", "print_config")), end="")
            return
        # Importing takes a second, in which the first process of a container would not hear of a signal without this.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        from serve.app import serve  # noqa: PLC0415 - so that --help is quick

        serve(self)
