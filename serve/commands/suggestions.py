"""The command `dragoman suggestions`."""

import json
from dataclasses import asdict

from pydantic import Field

from dragoman.serve.commands.state import StateCommand
from dragoman.serve.compat.libretranslate.suggestions import SuggestionStore


class SuggestionsCommand(StateCommand):
    """Print the translations that clients suggested over LibreTranslate's /suggest, as JSON lines."""

    delete: bool = Field(False, description="Delete what is printed")

    def cli_cmd(self) -> None:
        """Prints the oldest first."""
        with self.open() as state:
            store = SuggestionStore(state)
            suggestions = store.list()
            for _, suggestion in suggestions:
                print(json.dumps(asdict(suggestion), ensure_ascii=False))
            if self.delete and suggestions:
                store.delete(suggestions[-1][0])
