"""The files of the page and of the API documentation: tags, compression, headers, keys, and no other origin."""

from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from dragoman.serve.page.assets import CONTENT_SECURITY_POLICY, find_assets
from tests.support.live import WAIT_SECONDS, run_service

# The page with everything that it loads, compressed.
MAX_BYTES = 60_000


def test_the_page_is_light() -> None:
    assert sum(len(file.compressed) for file in find_assets("dragoman.serve.page", "static").values()) < MAX_BYTES


@pytest.mark.parametrize("path", ["/", "/page/style.css", "/page/js/main.js", "/page/icon.svg", "/docs"])
def test_a_file_is_sent_once_and_then_only_its_tag(address: str, path: str) -> None:
    with httpx.Client(base_url=address, timeout=WAIT_SECONDS) as client:
        plain = client.get(path, headers={"accept-encoding": "identity"})
        packed = client.get(path, headers={"accept-encoding": "gzip"})
        assert plain.content == packed.content
        assert packed.headers["content-encoding"] == "gzip"
        # Otherwise a cache sends the compressed file to clients that cannot read it.
        for answer in (plain, packed):
            assert set(answer.headers["vary"].lower().split(", ")) == {"accept-encoding"}
        assert plain.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        again = client.get(path, headers={"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_the_documentation_loads_nothing_from_elsewhere(browser: Browser, address: str) -> None:
    opened = browser.new_page()
    hosts: set[str] = set()
    problems: list[str] = []
    opened.on("request", lambda request: hosts.add(httpx.URL(request.url).host))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.goto(f"{address}/docs")
    expect(opened.locator(".opblock-summary-path", has_text="/v1/translate").first).to_be_visible()
    assert hosts == {"127.0.0.1"}
    assert problems == []


def test_the_page_needs_no_key_and_asks_for_one(bundle_path: Path, browser: Browser) -> None:
    with run_service(bundle_path, api_keys="secret") as live:
        assert live.get("/docs").status_code == 401
        opened = browser.new_page()
        opened.goto(live.http_url)
        expect(opened.locator("#key-dialog")).to_be_visible()
        opened.fill("#key", "wrong")
        opened.keyboard.press("Enter")
        expect(opened.locator("#key-problem")).to_have_text("The server does not accept this key.")
        assert Axe().run(opened).response["violations"] == []
        opened.fill("#key", "secret")
        opened.keyboard.press("Enter")
        expect(opened.locator("#source-language option").first).to_be_attached()
        assert opened.evaluate("[sessionStorage.length, Object.values(localStorage).includes('secret')]") == [1, False]
        opened.close()


def test_a_setting_turns_the_page_off(bundle_path: Path) -> None:
    with run_service(bundle_path, page=False) as live:
        statuses = [live.get(path).status_code for path in ("/", "/page/style.css", "/docs")]
    assert statuses == [404, 404, 200]


def test_the_documentation_groups_its_routes_by_interface(browser: Browser, address: str) -> None:
    document = httpx.get(f"{address}/openapi.json", timeout=WAIT_SECONDS).json()
    described = {tag["name"]: tag["description"] for tag in document["tags"]}
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert {tag for operation in operations for tag in operation["tags"]} == set(described)
    opened = browser.new_page()
    opened.goto(f"{address}/docs")
    expect(opened.locator(".opblock-tag > a")).to_have_text(list(described))
