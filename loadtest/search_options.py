"""The search options of the requests of a load: those of the server, from flags and files. Knows nothing else."""

from typing import Any

from pydantic import ConfigDict

from serve.translation.search_fields import SearchFields


class SearchOptions(SearchFields):
    """The server's search options; flags are text, and YAML has no tuples."""

    model_config = ConfigDict(strict=False)

    def given(self) -> dict[str, Any]:
        """Returns those that differ from their defaults, by the names of the contract."""
        return self.model_dump(exclude_defaults=True, mode="json")
