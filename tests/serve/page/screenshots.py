"""Makes the pictures of docs/page.md from a served model: `python -m tests.serve.page.screenshots`."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.serve.page import conftest
from tests.serve.page.conftest import CHROMIUM, FLAGS, opened_at
from tests.support.live import run_service
from tests.support.paths import ROOT

BUNDLE = ROOT / "bundles" / "included"
SENTENCES = "My sister bought a blue coat yesterday. We are going to the mountains tomorrow."
translate = partial(conftest.translate, text=SENTENCES)
CLIENTS = 12
LOAD_SECONDS = 5


def attention(page: Page) -> None:
    """The attention of the first sentence, with a lit word."""
    translate(page)
    page.click("#attention summary")
    page.locator("#target .word", has_text="Mantel").hover()


def alternatives(page: Page) -> None:
    """Other ways to continue from a word."""
    translate(page)
    page.locator("#target .word", has_text="blauen").click()
    page.locator("#alternatives small").first.wait_for()


def engine(page: Page) -> None:
    """The engine while it translates for many clients."""
    translate(page)
    page.click("#engine summary")
    page.wait_for_timeout(1000 * LOAD_SECONDS)


class Picture(NamedTuple):
    """A scene in a window."""

    scene: Callable[[Page], None]
    width: int
    theme: Literal["light", "dark"]
    height: int


PICTURES = {
    "page-light": Picture(attention, 1000, "light", 1000),
    "page-dark": Picture(attention, 390, "dark", 1170),
    "page-alternatives": Picture(alternatives, 1280, "light", 400),
    "page-engine": Picture(engine, 390, "dark", 1280),
}


@contextmanager
def load(address: str) -> Iterator[None]:
    """Translates for several clients at once."""
    ended = threading.Event()
    body = {"text": SENTENCES, "source_language": "en", "target_language": "de"}

    def work() -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while not ended.is_set():
                client.post("/v1/translate", json=body)

    clients = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for item in clients:
        item.start()
    try:
        yield
    finally:
        ended.set()
        for item in clients:
            item.join()


def take(browser: Browser, address: str, picture: Picture, path: Path) -> None:
    scene, width, theme, height = picture
    page = opened_at(browser, address, viewport={"width": width, "height": height}, color_scheme=theme)
    with load(address) if scene is engine else nullcontext():
        scene(page)
        page.screenshot(path=path)
    page.close()


def main() -> None:
    with (
        TemporaryDirectory() as state,
        run_service(BUNDLE, [], slots=8, engines=1, state_dir=Path(state)) as live,
        sync_playwright() as run,
    ):
        browser = run.chromium.launch(executable_path=shutil.which(CHROMIUM), args=FLAGS)
        for name, picture in PICTURES.items():
            take(browser, live.http_url, picture, ROOT / "docs" / "images" / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
