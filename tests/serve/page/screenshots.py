"""Makes the pictures of docs/page.md from a served model: `python -m tests.serve.page.screenshots [--all FOLDER]`."""

import argparse
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
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
WIDTHS = (1280, 390)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
CLIENTS = 12
LOAD_SECONDS = 5


def hover(page: Page) -> None:
    """A translation with a word below the pointer."""
    translate(page)
    page.locator("#target .word", has_text="Mantel").hover()


def attention(page: Page) -> None:
    """The attention of the first sentence, with a lit word."""
    translate(page)
    page.click("#attention summary")
    page.locator("#target .word", has_text="Mantel").hover()


def head(page: Page) -> None:
    attention(page)
    page.select_option("#map-layer", "1")
    page.select_option("#map-head", "2")
    page.locator("#attention .note", has_text="Head: 2").wait_for()


def best(page: Page) -> None:
    """The best translations of the first sentence."""
    translate(page)
    page.click("#best summary")
    page.locator("#best tbody tr").first.wait_for()


def code(page: Page) -> None:
    translate(page)
    page.click("#code summary")


def html(page: Page) -> None:
    """Translated markup with its preview."""
    page.check("#html")
    page.fill("#source", "<h1>Good morning</h1><p>My <b>sister</b> bought a <i>blue</i> coat yesterday.</p>")
    page.frame_locator("#preview").locator("h1").wait_for()


def doubt(page: Page) -> None:
    """A translation of low confidence."""
    translate(page, text="Quantum tax law abolishes seven melancholy carburetors.")


def right_to_left(page: Page) -> None:
    """A line from right to left above one from left to right, with a word below the pointer."""
    translate(page, text="\u05e9\u05dc\u05d5\u05dd \u05db\u05dc\u05d1 \u05d8\u05d5\u05d1.\nThe dogs are running.")
    page.locator("#target .word", has_text="Hunde").hover()


def error(page: Page) -> None:
    """A server that is busy."""
    page.route("**/v1/translate/stream", lambda route: route.fulfill(status=429, json={"reason": "queue_full"}))
    page.fill("#source", SENTENCES)
    page.locator("#error", has_text="busy").wait_for()


def key(page: Page) -> None:
    page.route("**/v1/translate/stream", lambda route: route.fulfill(status=401, json={"reason": "unauthorized"}))
    page.fill("#source", SENTENCES)
    page.locator("#key-dialog").wait_for()


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


def terms(page: Page) -> None:
    """Terms, and how they came in."""
    page.click("#terms summary")
    page.fill("#terms-text", "coat = Jacke | Jacken\nmountains = Gebirge")
    translate(page)
    page.locator("#terms-applied tr").first.wait_for()


def files(page: Page) -> None:
    page.click("#files summary")
    page.set_input_files("#file", {"name": "dogs.txt", "mimeType": "text/plain", "buffer": SENTENCES.encode()})
    page.get_by_role("button", name="Save", exact=True).wait_for()


SCENES: dict[str, Callable[[Page], None]] = {
    scene.__name__: scene
    for scene in (
        *(hover, attention, head, alternatives, best, engine, code, terms, files, html),
        *(doubt, right_to_left, error, key),
    )
}


class Picture(NamedTuple):
    """A scene in a window; its height is that of the whole page if None."""

    scene: str
    width: int
    theme: Literal["light", "dark"]
    height: int | None = None


SHOWN = {
    "page-light": Picture("attention", 1000, "light", 1000),
    "page-dark": Picture("attention", 390, "dark", 1170),
    "page-alternatives": Picture("alternatives", 1280, "light", 400),
    "page-engine": Picture("engine", 390, "dark", 1280),
}
EVERY = {"-".join(map(str, kind)): Picture(*kind) for kind in product(SCENES, WIDTHS, THEMES)}


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
    page = opened_at(browser, address, viewport={"width": width, "height": height or 900}, color_scheme=theme)
    with load(address) if scene == "engine" else nullcontext():
        SCENES[scene](page)
        page.screenshot(path=path, full_page=height is None)
    page.close()


def main(pictures: dict[str, Picture], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory() as state,
        run_service(BUNDLE, [], slots=8, engines=1, state_dir=Path(state)) as live,
        sync_playwright() as run,
    ):
        browser = run.chromium.launch(executable_path=shutil.which(CHROMIUM), args=FLAGS)
        for name, picture in pictures.items():
            take(browser, live.http_url, picture, folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write each scene, width and theme into this folder")
    folder = parser.parse_args().all
    main(EVERY if folder else SHOWN, folder or ROOT / "docs" / "images")
