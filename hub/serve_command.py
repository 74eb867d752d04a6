"""`dragoman serve` with names of models."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import CliPositionalArg

from dragoman.serve.commands.serve import ServeCommand
from dragoman.serve.settings import SHIPPED_BUNDLE

if TYPE_CHECKING:
    from dragoman.serve.source import ModelSource

DEMO_NOTE = """The included model is small and often wrong. For a real one, give its name or languages:
    dragoman serve en-de        (`dragoman models --remote` lists names)"""


class ServeModelsCommand(ServeCommand):
    """Serve models over gRPC and REST: bundles, folders of bundles, or names as for `dragoman pull`.

    A name that is not installed is downloaded and converted first; an installed one needs no network.

    A setting is a flag, an environment variable (DRAGOMAN_HTTP_PORT) or a key of a YAML or TOML file (http_port), in
    this order of precedence. In the file, `models: NAME:` overrides settings of one model. docs/configuration.md
    describes all settings.

    The server is ready after it has translated the golden sentences of every bundle exactly. SIGHUP reloads the
    bundles. SIGTERM or Ctrl-C finishes accepted requests; a second signal stops the server at once. With --processes,
    SIGUSR2 replaces one process after the other.
    """

    bundle: CliPositionalArg[Path] = Field(
        SHIPPED_BUNDLE,
        description="Bundle, folder of bundles, or name of a model (default: the included en, de, fr, cs bundle)",
        json_schema_extra={"placeholder": "MODEL"},
    )
    more: CliPositionalArg[list[str]] = Field([], description="More names of models, to serve together")

    def cli_cmd(self) -> None:
        """Installs the models that are not installed, and serves all."""
        if self.print_config:
            super().cli_cmd()
            return
        self.model_source()  # A wrong list is refused before a server starts.
        if self.bundle == SHIPPED_BUNDLE and not self.more:
            print(DEMO_NOTE, flush=True)
            super().cli_cmd()
            return
        from dragoman.hub.install import find_bundle  # noqa: PLC0415 - keeps --help quick

        # The first process of a container ignores signals without a handler; a download takes minutes.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        bundle = find_bundle([str(self.bundle), *self.more])
        found = self.model_copy(update={"bundle": bundle, "more": []})
        super(ServeModelsCommand, found).cli_cmd()

    def model_source(self) -> "ModelSource | None":
        """Returns the models of the catalog that `--on-demand` names; raises HubError if one is no pair."""
        if self.on_demand is None:
            return None
        from dragoman.hub.on_demand import CatalogSource  # noqa: PLC0415 - keeps --help quick

        return CatalogSource(self.on_demand, self.on_demand_max_bytes, self.on_demand_downloads)
