"""On a full disk, every interface answers a request that stores something with 507, and translates as before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.full_disk import fill_database
from tests.support.live import LiveService, run_service

ADMIN = "a" * 32
# No page of the database has room for it.
LONG = "a " * 4000
PAIR = {"source_language": "en", "target_language": "de"}
ENTRIES = "".join(f"term {number}\tWort\n" for number in range(2000))
GLOSSARY = {"name": "a", "source_lang": "en", "target_lang": "de", "entries": ENTRIES, "entries_format": "tsv"}
MODELS = {"name": "a", "models": [f"model-{number}" for number in range(1000)]}


@pytest.fixture(scope="module")
def full(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    state_dir = tmp_path_factory.mktemp("state")
    with run_service(bundle_path, state_dir=state_dir, corrections=True, admin_key=ADMIN) as live:
        state = live.service.core.state
        assert state is not None
        fill_database(state)
        yield live


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/v1/documents", {"content": b"alpha", "params": {**PAIR, "name": "a.txt", "glossary": "g" * 5000}}),
        ("/v1/glossaries", {"json": {"name": "a", "dictionaries": [{**PAIR, "format": "tsv", "text": ENTRIES}]}}),
        ("/v2/glossaries", {"data": GLOSSARY}),
        ("/suggest", {"data": {"q": LONG, "s": "b", "source": "en", "target": "de"}}),
        ("/v1/keys", {"json": MODELS, "headers": {"authorization": f"Bearer {ADMIN}"}}),
    ],
)
def test_what_cannot_be_stored_is_refused(full: LiveService, path: str, request_: dict[str, Any]) -> None:
    answer = full.post(path=path, **request_)
    assert answer.status_code == 507
    assert "storage of the server is full" in answer.text
    assert answer.headers["retry-after"] == "60"


def test_translations_go_on(full: LiveService) -> None:
    assert full.post({"text": "alpha."}).status_code == 200
