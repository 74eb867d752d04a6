"""Makes the pictures of docs/page.md from a served model: `python -m tests.serve.page.screenshots [FOLDER]`."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from serve.registry.engine_models import load_engines
from tests.serve.page.conftest import CHROMIUM, FLAGS, translate
from tests.support.live import run_service
from tests.support.paths import ROOT

SIZES = {"light": (1000, 920), "dark": (390, 700)}


def show(page: Page, address: str) -> None:
    """Translates two sentences, opens the attention drawer and lights a word."""
    page.goto(f"{address}/#en/de/")
    page.wait_for_function("document.querySelector('#target-language').value === 'de'")
    translate(page)
    page.click("#attention summary")
    page.locator("#target .word", has_text="Leiter").hover()


def main(folder: Path) -> None:
    """Writes one picture per theme."""
    with (
        run_service(ROOT / "bundles" / "multi30k", [], load=load_engines, native=True) as live,
        sync_playwright() as run,
    ):
        browser = run.chromium.launch(executable_path=shutil.which(CHROMIUM), args=FLAGS)
        for theme, (width, height) in SIZES.items():
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=theme, locale="en-US")  # type: ignore[arg-type]
            show(page, f"http://127.0.0.1:{live.service.http_port}")
            page.screenshot(path=folder / f"page-{theme}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
