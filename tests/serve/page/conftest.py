"""A server of the included model, and a real browser: Debian's Chromium, which `make test` installs."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support.live import WAIT_SECONDS, LiveService, run_service
from tests.support.paths import ROOT

CHROMIUM = "chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# A word of the current translation. While somebody types, the page may still show words of an earlier one.
TRANSLATED = "#target[aria-busy=false] .word"
WAIT_MILLISECONDS = 1000 * WAIT_SECONDS
PAIR = {"source_language": "en", "target_language": "de"}
SENTENCES = "A man in a blue shirt is standing on a ladder. Two dogs run over the green grass."


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service of the included model that takes documents and glossaries."""
    limits: dict[str, Any] = {"slots": 8, "engines": 1, "queue_limit": 256}
    with run_service(ROOT / "bundles" / "multi30k", [], state_dir=tmp_path_factory.mktemp("s"), **limits) as service:
        yield service


@pytest.fixture(scope="module")
def address(live: LiveService) -> str:
    return live.http_url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"needs {CHROMIUM}, which tests/install_chromium.sh installs")
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def profile(chromium: Browser) -> BrowserContext:
    """The files and the permissions of the pages of a module that change no clock."""
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MILLISECONDS)
    return context


@pytest.fixture
def browser(chromium: Browser, profile: BrowserContext) -> Iterator[Browser]:
    """The same; its pages close after the test."""
    yield chromium
    for context in chromium.contexts:
        if context is not profile:
            context.close()


@pytest.fixture
def opened(browser: Browser, address: str) -> Page:
    """The page, ready to type from English to German; the browser may report problems."""
    return opened_at(browser, address)


@pytest.fixture
def page(profile: BrowserContext, address: str) -> Iterator[Page]:
    """The page, ready to type from English to German; fails if the browser reports a problem."""
    opened = opened_in(profile.new_page(), address)
    problems: list[str] = []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    opened.evaluate("localStorage.clear()")
    opened.close()
    # The browser reports as an error that the preview may not run a script.
    assert [problem for problem in problems if "sandboxed" not in problem] == []


def new_page(browser: Browser, **options: Any) -> Page:
    """Returns an empty page, by default of an English reader."""
    opened = browser.new_page(**{"locale": "en-US", **options})
    opened.set_default_timeout(WAIT_MILLISECONDS)
    return opened


def opened_at(browser: Browser, address: str, **options: Any) -> Page:
    """Returns the page, ready to type from English to German."""
    return opened_in(new_page(browser, **options), address)


def opened_in(opened: Page, address: str) -> Page:
    """Opens the page in an empty one."""
    opened.goto(f"{address}/#en/de/")
    # `wait_for_function` would repeat by `eval`, which the page forbids.
    expect(opened.locator("#target-language")).to_have_value("de")
    return opened


def cells_of_the_map(page: Page) -> list[float]:
    """Returns how opaque the cells of the attention drawer are, row by row."""
    opacity = "all => all.map(each => Number(each.getAttribute('fill-opacity')))"
    cells: list[float] = page.eval_on_selector_all("#attention rect", opacity)
    return cells


def translate(page: Page, text: str = SENTENCES) -> None:
    """Types a text and waits for the words of its translation."""
    page.fill("#source", text)
    page.wait_for_selector(TRANSLATED)
