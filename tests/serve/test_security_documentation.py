"""What `docs/security.md` names exists, and what is open without a key is named there."""

import re
from pathlib import Path

from dragoman.serve.compat.open_inference.grpc import PROBES
from dragoman.serve.settings import ServeSettings
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
# These options are Docker's.
FOREIGN_OPTIONS = {"--stop-timeout", "--api-key", "--root"}


def test_every_setting_of_the_page_exists() -> None:
    options = set(re.findall(r"--[a-z][a-z-]+", SECURITY)) - FOREIGN_OPTIONS
    known = {f"--{name.replace('_', '-')}" for name in ServeSettings.model_fields}
    known |= {f"--no-{name.replace('_', '-')}" for name in ServeSettings.model_fields}
    assert options
    assert options <= known


def test_the_table_of_open_routes_is_complete(bundle_path: Path, tmp_path: Path) -> None:
    opened = set[str]()
    running = run_service(bundle_path, api_keys="secret", admin_key="admin", state_dir=tmp_path)
    with running as service, service.http() as client:
        document = client.get("/openapi.json", headers={"authorization": "Bearer secret"}).json()
        for path, methods in document["paths"].items():
            for method in methods:
                answer = client.request(method, re.sub(r"\{\w+\}", "x", path))
                # LibreTranslate answers 400 if there is no key, DeepL 403.
                if answer.status_code not in (401, 403) and "API key" not in answer.text:
                    opened.add(path)
    named = {path for path in opened if f"`{path}`" in SECURITY or f"`{path.replace('{name}', 'NAME')}`" in SECURITY}
    assert opened - named == set()


def test_every_open_method_of_grpc_is_named() -> None:
    assert {path for path in PROBES if f"`{path.rpartition('/')[2]}`" not in SECURITY} == set()


def test_every_metric_of_the_page_exists(live: LiveService) -> None:
    names = set(re.findall(r"`(dragoman_[a-z_]+)", SECURITY))
    metrics = live.get("/metrics").text
    assert names
    assert [name for name in names if f"\n{name}" not in metrics] == []
