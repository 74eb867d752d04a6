"""Every task of the page is done by keyboard alone: Tab reaches each control, and keys work it."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.serve.page.conftest import SENTENCES, TRANSLATED, cells_of_the_map
from tests.support.live import eventually

SENTENCE = "A man in a blue shirt is standing on a ladder."
MAX_TABS = 40


def focused(page: Page) -> str:
    text: str = page.evaluate("document.activeElement.textContent")
    return text


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Presses Tab, or Shift and Tab, until an element that matches has the focus."""
    for _ in range(MAX_TABS):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press(key)
    pytest.fail(f"Tab does not reach {selector}")


def type_text(page: Page, text: str = SENTENCE) -> None:
    """Tabs to the text, types, and translates at once."""
    tab_to(page, "#source")
    page.keyboard.type(text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(TRANSLATED)


def press(page: Page, selector: str, key: str = "Enter") -> None:
    """Tabs to an element and presses a key."""
    tab_to(page, selector)
    page.keyboard.press(key)


def test_languages_are_chosen_and_swapped(page: Page) -> None:
    tab_to(page, "#source-language")
    page.keyboard.type("Ger")
    tab_to(page, "#target-language")
    page.keyboard.type("Fre")
    type_text(page, "Zwei Hunde rennen.")
    assert (page.input_value("#source-language"), page.input_value("#target-language")) == ("de", "fr")
    translation = page.inner_text("#target")
    assert "chiens" in translation
    page.keyboard.press("Alt+s")
    expect(page.locator("#source-language")).to_have_value("fr")
    expect(page.locator("#source")).to_have_value(translation)


def test_words_are_walked_through_and_light_their_partners(page: Page) -> None:
    type_text(page)
    tab_to(page, "#target .word")
    page.keyboard.press("End")
    assert focused(page) == "."
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "Leiter"
    assert page.locator("#backdrop .lit").all_inner_texts() == ["ladder"]
    page.keyboard.press("Home")
    assert focused(page) == "Ein"


def test_alternatives_are_closed_by_two_keys_and_one_is_chosen(page: Page) -> None:
    type_text(page)
    tab_to(page, "#target .word")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    word = focused(page)
    page.keyboard.press("Enter")
    page.locator("#alternatives small").first.wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("#alternatives")).to_be_hidden()
    assert focused(page) == word
    page.keyboard.press("Enter")
    page.locator("#alternatives small").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.locator("#alternatives")).to_be_hidden()
    expect(page.locator("#copy")).to_be_focused()
    tab_to(page, "#target .word", "Shift+Tab")
    page.keyboard.press("Enter")
    page.locator("#alternatives small").first.wait_for()
    page.keyboard.press("ArrowDown")
    chosen = page.evaluate("document.activeElement.firstChild.textContent")
    page.keyboard.press("Enter")
    expect(page.locator("#target")).to_have_text(chosen)


def test_the_map_of_another_sentence_is_saved(page: Page, tmp_path: Path) -> None:
    type_text(page, SENTENCES)
    press(page, "#attention summary")
    press(page, "#attention select", "ArrowDown")
    expect(page.locator("#attention .map")).to_contain_text("Hunde")
    tab_to(page, "#attention button")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    download.value.save_as(tmp_path / "map.svg")
    assert "Hunde" in (tmp_path / "map.svg").read_text()


def test_the_map_of_a_layer_and_a_head_is_shown(page: Page) -> None:
    type_text(page)
    press(page, "#attention summary")
    page.wait_for_selector("#map-layer")
    mean = cells_of_the_map(page)
    tab_to(page, "#map-layer")
    page.keyboard.type("0")
    tab_to(page, "#map-head")
    page.keyboard.type("1")
    expect(page.locator("#attention .note")).to_contain_text("Layer: 0. Head: 1.")
    assert cells_of_the_map(page) != mean
    assert page.evaluate("document.activeElement.id") == "map-head"


def test_the_focus_stays_when_the_choice_of_layers_and_heads_appears(page: Page) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/attention", hold)
    type_text(page)
    press(page, "#attention summary")
    tab_to(page, "#map-svg")
    held[0].continue_()
    page.wait_for_selector("#map-layer")
    expect(page.locator("#map-svg")).to_be_focused()


def test_another_of_the_best_is_shown_the_engine_watched_and_the_request_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    type_text(page)
    press(page, "#best summary")
    page.wait_for_selector("#best tbody tr")
    chosen = page.locator("#best tbody tr").nth(1).locator("td").nth(1).inner_text()
    press(page, "#best tr:nth-child(2) button")
    expect(page.locator("#target")).to_have_text(chosen)
    press(page, "#engine summary")
    expect(page.locator("#engine .meter")).to_have_count(6)
    page.keyboard.press("Enter")
    expect(page.locator("#engine .meter").first).to_be_hidden()
    press(page, "#code summary")
    press(page, "#code button")
    eventually(lambda: page.evaluate("navigator.clipboard.readText()").startswith("curl "))


def test_a_text_is_cleared_and_html_translated(page: Page) -> None:
    type_text(page)
    press(page, "#clear")
    expect(page.locator("#source")).to_be_focused()
    expect(page.locator("#target")).to_have_text("")
    press(page, "#html", "Space")
    tab_to(page, "#source", "Shift+Tab")
    page.keyboard.type("A <b>man</b> sleeps.")
    expect(page.locator("#target")).to_have_text(re.compile("<b>.*</b>"))


def test_terms_are_given(page: Page) -> None:
    press(page, "#terms summary")
    tab_to(page, "#terms-text")
    page.keyboard.type("ladder = Stiege")
    tab_to(page, "#source", "Shift+Tab")
    type_text(page)
    expect(page.locator("#target")).to_contain_text("Stiege")


def test_theme_and_language_of_the_page_are_chosen(page: Page) -> None:
    tab_to(page, "#ui-language")
    page.keyboard.type("de")
    expect(page.locator("#source")).to_have_attribute("placeholder", re.compile("Text eingeben"))
    press(page, "#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
