"""The site of the documentation, as `make site` builds it: files, search, and no other origin."""

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.http_serving import serving
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, *, thorough: bool) -> Iterator[str]:
    """The address of the site as one of two versions, built with every warning as an error."""
    if not thorough:
        pytest.skip("builds for half a minute: run with --thorough, as the checks of each change do")
    folder = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--site-dir", str(folder / "0.1.0")]
    subprocess.run(command, cwd=ROOT, check=True)
    listed = [{"version": name, "title": name, "aliases": list[str]()} for name in ("0.2.0", "0.1.0")]
    (folder / "versions.json").write_text(json.dumps(listed))
    with serving(functools.partial(SimpleHTTPRequestHandler, directory=folder)) as address:
        yield f"{address}/0.1.0/"


def test_the_site_has_search_files_and_versions_and_loads_nothing_from_elsewhere(site: str, browser: Browser) -> None:
    opened = browser.new_page()
    opened.set_default_timeout(120_000)  # the references are long, and the processor may be busy
    hosts: set[str] = set()
    opened.on("request", lambda request: hosts.add(httpx.URL(request.url).host))
    opened.goto(site)
    expect(opened.locator(".md-version")).to_contain_text("0.2.0")
    expect(opened.locator(".md-search-result__meta")).to_have_text("Type to start searching")
    opened.locator("[data-md-component=search-query]").press_sequentially("dragoman_build_info")
    expect(opened.locator(".md-search-result")).to_contain_text("metrics")
    for name, text in (("rest", "POST /v1/translate"), ("grpc", "rpc TranslateMany"), ("python", "TranslationClient")):
        opened.goto(f"{site}docs/{name}_reference/", wait_until="domcontentloaded")
        expect(opened.locator("article")).to_contain_text(text)
    assert hosts == {"127.0.0.1"}
    assert len(httpx.get(f"{site}docs/rest_reference/").content) < 1_200_000
    assert httpx.get(f"{site}tests/gpu/run.sh").content == (ROOT / "tests/gpu/run.sh").read_bytes()
