"""The page of a newcomer: it detects his language, proposes another one, and states what the models are for."""

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.serve.page.conftest import new_page, translate
from tests.support.live import WAIT_SECONDS

ENGLISH = "A man in a blue shirt is standing on a ladder."
CZECH = "Muž v modré košili stojí na žebříku."


def first_visit(browser: Browser, address: str, locale: str) -> Page:
    opened = new_page(browser, locale=locale)
    opened.goto(address)
    expect(opened.locator("#target-language")).not_to_have_value("")
    return opened


@pytest.mark.parametrize(
    ("locale", "target", "text"), [("en-US", "cs", CZECH), ("de-DE", "en", ENGLISH), ("it-IT", "en", ENGLISH)]
)
def test_it_detects_the_language_and_does_not_give_a_sentence_back(
    browser: Browser, address: str, locale: str, target: str, text: str
) -> None:
    opened = first_visit(browser, address, locale)
    assert opened.input_value("#source-language") == "auto"
    assert opened.input_value("#target-language") == target
    translate(opened, text)
    assert opened.inner_text("#target") != text


def test_a_chosen_target_stays(browser: Browser, address: str) -> None:
    opened = first_visit(browser, address, "de-DE")
    opened.select_option("#target-language", "en")
    opened.fill("#source", ENGLISH)
    expect(opened.locator("#detected")).to_have_text("Englisch, zu 100 % sicher: bitte eine andere Zielsprache wählen")
    assert opened.input_value("#target-language") == "en"


def test_swapped_languages_before_a_text_are_those_of_the_reader(browser: Browser, address: str) -> None:
    opened = first_visit(browser, address, "de-DE")
    opened.click("#swap")
    expect(opened.locator("#source-language")).to_have_value("en")
    expect(opened.locator("#target-language")).to_have_value("de")


def with_models(address: str, change: Callable[[dict[str, object]], object]) -> Callable[[Route], None]:
    """Returns an answer with the changed models of the server."""
    models = httpx.get(f"{address}/v1/models", timeout=WAIT_SECONDS).json()["models"]
    for model in models:
        change(model)
    return lambda route: route.fulfill(json={"models": models})


def test_a_model_of_one_direction_keeps_its_target(browser: Browser, address: str) -> None:
    opened = new_page(browser, locale="de-DE")
    only = {"directions": [{"source_language": "en", "target_language": "de"}]}
    opened.route("**/v1/models", with_models(address, lambda model: model.update(only)))
    opened.goto(address)
    expect(opened.locator("#target-language")).to_have_value("de")
    assert opened.input_value("#source-language") == "auto"


def test_the_page_says_what_the_model_is_for(browser: Browser, address: str) -> None:
    opened = first_visit(browser, address, "en-US")
    words = "Trained for: captions of photographs. Other texts may come out wrong."
    expect(opened.locator("#purpose")).to_have_text(words)
    opened.route("**/v1/models", with_models(address, lambda model: model.update({"description": ""})))
    opened.reload()
    expect(opened.locator("#target-language")).not_to_have_value("")
    expect(opened.locator("#purpose")).to_have_text("")
