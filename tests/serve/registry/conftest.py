"""Services that notice the failure and the recovery of a model at once."""

import pytest


@pytest.fixture(autouse=True)
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("dragoman.serve.registry.registry", "dragoman.serve.registry.on_demand", "dragoman.serve.service"):
        monkeypatch.setattr(f"{module}.WATCH_SECONDS", 0.02)
