"""Every text of the page has all its languages, also while a translation is on the screen."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.serve.page.conftest import SENTENCES, translate
from tests.support.cases import cases
from tests.support.paths import ROOT

CASES = cases(__file__)

LANGUAGES = ("de", "fr", "cs")
# The same in every language.
SHARED = {"html", "milliseconds"}
# All visible texts, labels and hints, besides those of the user.
VISIBLE: str = CASES["visible texts"]


def tables(page: Page) -> dict[str, dict[str, str]]:
    texts: Any = page.evaluate("import('/page/js/texts.js')")
    return {"en": texts["english"], **texts["translated"]}


def pattern(text: str) -> str:
    return "".join(".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", text))


def in_english(page: Page, texts: dict[str, dict[str, str]], language: str) -> list[str]:
    """Returns the visible texts that are those of the English page, and no texts of the language."""
    own = [pattern(text) for text in (texts["en"] | texts[language]).values() if text in texts[language].values()]
    english = [pattern(text) for key, text in texts["en"].items() if key not in SHARED and text != texts[language][key]]

    def matches(text: str, patterns: list[str]) -> bool:
        return any(re.fullmatch(item, part) for item in patterns for part in (text, *text.split(". ")))

    return [text for text in page.evaluate(VISIBLE) if matches(text, english) and not matches(text, own)]


def test_every_text_has_every_language(page: Page) -> None:
    texts = tables(page)
    assert set(texts) == {"en", *LANGUAGES}
    for language in LANGUAGES:
        assert set(texts[language]) == set(texts["en"]) - SHARED
        for key, text in texts[language].items():
            assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", texts["en"][key])), (language, key)


def test_the_document_itself_holds_no_text() -> None:
    body = Path(ROOT, "serve/page/static/index.html").read_text().partition("<body>")[2]
    assert {text for item in re.findall(r">([^<]+)<", body) if (text := item.strip())} == {"Dragoman", "⇄"}
    assert re.findall(r' (?:aria-label|title|alt|placeholder)="([^"]+)"', body) == ["beach = Ufer | Ufers"]


def test_a_chosen_language_is_that_of_everything_on_the_page(opened: Page) -> None:
    opened.select_option("#source-language", "auto")
    translate(opened, f"{SENTENCES} Quantum tax law abolishes seven melancholy carburetors.")
    for drawer in ("terms", "files", "attention", "best", "engine", "code"):
        opened.click(f"#{drawer} summary")
    opened.fill("#terms-text", "ladder Stiege\nblue =\nblue = blau")
    expect(opened.locator("#terms-problem p")).to_have_count(2)
    opened.set_input_files("#file", {"name": "dogs.txt", "mimeType": "text/plain", "buffer": b"Two dogs run."})
    opened.get_by_role("button", name="Save", exact=True).wait_for()
    opened.locator("#map-layer").wait_for()
    opened.locator("#best tbody tr").first.wait_for()
    opened.locator("#engine .meter").first.wait_for()
    opened.locator("#target .word").nth(3).click()
    opened.locator("#alternatives small").first.click()
    expect(opened.locator("#code .note")).to_contain_text("sentence 1 alone")
    opened.route("**/metrics", lambda route: route.abort())
    expect(opened.locator("#engine [role=status]")).to_contain_text("not current")
    texts = tables(opened)
    assert "Engine" in opened.evaluate(VISIBLE)
    for language in LANGUAGES:
        opened.select_option("#ui-language", language)
        expect(opened.locator("#best th").first).to_have_text(texts[language]["rank"])
        expect(opened.locator("#attention .note").last).not_to_contain_text("The more a cell")
        assert in_english(opened, texts, language) == []


def test_an_error_on_the_screen_changes_its_language(opened: Page) -> None:
    opened.route("**/v1/translate/stream", lambda route: route.abort())
    opened.fill("#source", "A dog.")
    expect(opened.locator("#error")).to_have_text("The server cannot be reached. Is it running?")
    for language in LANGUAGES:
        opened.select_option("#ui-language", language)
        assert in_english(opened, tables(opened), language) == []
