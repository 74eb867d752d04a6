"""Corrections on the page: what one keeps waits, and counts for the next equal text once it is approved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.page.conftest import opened_at, translate
from tests.support.live import run_service
from tests.support.paths import ROOT

TEXT = "Two dogs run over the green grass."
BETTER = "Zwei Hunde rennen übers grüne Gras."


@pytest.fixture(scope="module")
def corrected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that takes corrections."""
    folder: Path = tmp_path_factory.mktemp("s")
    (folder / "keys").write_text("team name=team approve=true\nother name=other\n")
    settings: dict[str, Any] = {
        "state_dir": folder,
        "api_keys_file": folder / "keys",
        "corrections": True,
        "memory": "corrections",
    }
    with run_service(ROOT / "bundles" / "multi30k", [], slots=8, engines=1, **settings) as service:
        yield service.http_url


def with_key(browser: Browser, address: str, key: str) -> Page:
    page = browser.new_page(locale="en-US", viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/#en/de/")
    page.fill("#key", key)
    page.click("#key-dialog button")
    expect(page.locator("#target-language")).to_have_value("de")
    return page


def test_a_correction_that_is_kept_and_approved_answers_the_next_equal_text(browser: Browser, corrected: str) -> None:
    page = with_key(browser, corrected, "team")
    translate(page, TEXT)
    page.click("#corrections summary")
    expect(page.locator("#correction")).to_have_value(page.inner_text("#target"))
    page.fill("#correction", BETTER)
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.locator("#correction-status")).to_have_text("Kept: it waits for approval.")
    expect(page.locator("#correction-list li")).to_contain_text([BETTER])
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#correction-list li")).to_have_count(0)
    expect(page.locator("#target")).to_have_text(BETTER)
    expect(page.locator("#route")).to_have_text("From the translation memory")
    expect(page.locator("#certainty")).to_have_text("")
    page.fill("#source", f"{TEXT} A man stands on a ladder.")
    expect(page.locator("#target")).to_contain_text(f"{BETTER} Ein Mann")


def test_a_key_without_the_right_keeps_but_does_not_approve(browser: Browser, corrected: str) -> None:
    page = with_key(browser, corrected, "other")
    translate(page, "A man stands on a ladder.")
    page.click("#corrections summary")
    page.fill("#correction", "Ein Mann steht oben auf der Leiter.")
    page.get_by_role("button", name="Keep", exact=True).click()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#error")).to_contain_text("expected an API key that may approve")


def test_a_server_without_corrections_says_so(browser: Browser, address: str) -> None:
    page = opened_at(browser, address)
    page.click("#corrections summary")
    expect(page.locator("#correction-status")).to_contain_text("needs --corrections")
