"""The page in a real browser: what is typed is translated, words are linked, and everything works by keyboard."""

import json
import re
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.serve.page.conftest import SENTENCES, translate
from tests.support.live import LiveService, eventually

LONG = " ".join([SENTENCES] * 12)


def lit(page: Page, side: str) -> list[str]:
    """Returns the texts of the lit words of a side."""
    return page.locator(f"#{side} .lit").all_inner_texts()


def test_typing_translates_like_the_interface(page: Page, address: str) -> None:
    translate(page)
    body = {"text": SENTENCES, "source_language": "en", "target_language": "de"}
    answer = httpx.post(f"{address}/v1/translate", json=body).json()
    assert page.inner_text("#target") == answer["translations"][0]["text"]
    assert page.inner_text("#route") == f"Model {answer['model']}"


def test_typing_on_ends_the_translation_in_progress_and_frees_its_slot(page: Page, live: LiveService) -> None:
    def cancelled() -> float:
        return live.metric("requests_total", method="translate_stream", outcome="cancelled")

    before = cancelled()
    for _ in range(40):  # a fast machine may finish one before the next keystroke
        page.fill("#source", LONG)
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(15)
        page.fill("#source", "A")
        if cancelled() > before:
            break
    eventually(lambda: cancelled() > before)
    eventually(lambda: live.metric("sequences_running") == 0)


def test_hovering_over_a_word_lights_its_partners_on_both_sides(page: Page) -> None:
    translate(page)
    page.locator("#target .word", has_text="Leiter").hover()
    assert (lit(page, "target"), lit(page, "backdrop")) == (["Leiter"], ["ladder"])
    box = page.locator("#backdrop span", has_text="dogs").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert (lit(page, "target"), lit(page, "backdrop")) == (["Hunde"], ["dogs"])


def test_the_caret_lights_the_partners_of_its_word(page: Page) -> None:
    translate(page)
    page.focus("#source")
    page.evaluate("at => document.querySelector('#source').setSelectionRange(at, at)", SENTENCES.index("dogs") + 1)
    expect(page.locator("#target .lit")).to_have_text(["Hunde"])


def test_an_alternative_at_a_word_replaces_the_translation(page: Page) -> None:
    translate(page, "A man in a blue shirt is standing on a ladder.")
    before = page.inner_text("#target")
    page.locator("#target .word").nth(3).click()
    option = page.locator("#alternatives [role=option] small").first
    option.wait_for()
    chosen = page.locator("#alternatives [role=option]").first.inner_text().split("\n")[0]
    option.click()
    expect(page.locator("#target")).to_have_text(chosen)
    assert chosen != before
    assert chosen.split()[:3] == before.split()[:3]
    assert page.locator("#target .word").count() == len(re.findall(r"[\w-]+|[^\w\s]", chosen))


def test_every_cell_of_the_attention_map_is_a_weight_of_the_answer(page: Page, address: str) -> None:
    translate(page)
    page.click("#attention summary")
    body = {"text": SENTENCES, "source_language": "en", "target_language": "de", "options": {"alignments": "words"}}
    answer = httpx.post(f"{address}/v1/translate", json=body).json()
    weights = answer["translations"][0]["alignments"][0]["weights"]
    cells = page.eval_on_selector_all(
        "#attention rect", "all => all.map(each => Number(each.getAttribute('fill-opacity')))"
    )
    assert cells == pytest.approx([max(0, min(1, each)) ** 0.5 for row in weights for each in row], abs=1e-3)


def test_the_map_is_saved_as_svg_and_png(page: Page, tmp_path: Path) -> None:
    translate(page)
    page.click("#attention summary")
    for name, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.click(f"text=Save as {name}")
        download.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_html_keeps_its_tags_and_the_preview_runs_no_script(page: Page) -> None:
    page.check("#html")
    page.fill("#source", "A <b>man</b> sleeps.<script>parent.document.title = 'reached'</script>")
    expect(page.locator("#target")).to_have_text(re.compile(r"<b>.*</b>"))
    expect(page.locator("#preview")).to_be_visible()
    assert page.frame_locator("#preview").locator("b").count() == 1
    assert page.title() == "Dragoman"


def test_markup_in_a_translation_stays_text(page: Page) -> None:
    page.fill("#source", "A man <img src=x onerror=document.title='reached'> sleeps.")
    page.wait_for_selector("#target .word")
    assert page.locator("#target img").count() == 0
    assert page.title() == "Dragoman"


def test_the_language_of_a_text_is_detected(page: Page) -> None:
    page.select_option("#source-language", "auto")
    page.select_option("#target-language", "en")
    page.fill("#source", "Ein Hund rennt über die grüne Wiese.")
    expect(page.locator("#detected")).to_have_text(re.compile("German"))
    assert "dog" in page.inner_text("#target")
    page.keyboard.press("Alt+s")
    expect(page.locator("#source-language")).to_have_value("en")
    expect(page.locator("#target-language")).to_have_value("de")


def test_a_text_beyond_the_limit_says_so_and_is_not_sent(page: Page) -> None:
    page.fill("#source", "a" * 10_001)
    expect(page.locator("#count")).to_have_text("10,001 of 10,000 characters: too long")
    page.wait_for_timeout(400)
    assert page.inner_text("#target") == ""


def test_the_address_holds_languages_and_text(page: Page, browser: Browser) -> None:
    page.select_option("#target-language", "fr")
    translate(page)
    opened = browser.new_page()
    opened.goto(page.url)
    expect(opened.locator("#source")).to_have_value(SENTENCES)
    expect(opened.locator("#target")).to_have_text(page.inner_text("#target"))
    opened.close()


def test_the_page_speaks_the_language_of_its_reader(browser: Browser, address: str) -> None:
    for locale, placeholder in (
        ("de-DE", "Text eingeben"),
        ("fr-FR", "Saisir"),
        ("cs-CZ", "Napište"),
        ("it-IT", "Type"),
    ):
        opened = browser.new_page(locale=locale)
        opened.goto(address)
        expect(opened.locator("#source")).to_have_attribute("placeholder", re.compile(placeholder))
        opened.close()


def test_terms_have_their_given_translations(page: Page, address: str) -> None:
    dictionary = {
        "source_language": "en",
        "target_language": "de",
        "entries": [{"source": "ladder", "targets": "Stiege"}],
    }
    stored = httpx.post(f"{address}/v1/glossaries", json={"name": "tools", "dictionaries": [dictionary]}).json()
    page.click("#terms summary")
    page.fill("#terms-text", "shirt = Kittel | Kittels\nblue")
    page.get_by_label("tools").check()
    translate(page, "A man in a blue shirt is standing on a ladder.")
    expect(page.locator("#terms-applied tr")).to_have_count(3)
    for term in ("blue", "Kittel", "Stiege"):
        assert term in page.inner_text("#target")
    page.get_by_label("tools").uncheck()
    expect(page.locator("#terms-applied tr")).to_have_count(2)
    httpx.delete(f"{address}/v1/glossaries/{stored['id']}")


def test_a_dropped_file_is_translated_saved_and_deleted(page: Page, address: str, tmp_path: Path) -> None:
    page.evaluate("""() => {
        const files = new DataTransfer();
        files.items.add(new File(["Two dogs run.\\n"], "dogs.txt", {type: "text/plain"}));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
    }""")
    translated = page.locator("#file-list li", has_text="dogs.txt")
    with page.expect_download() as download:
        translated.get_by_role("button", name="Save").click()
    download.value.save_as(tmp_path / "saved")
    body = {"text": "Two dogs run.", "source_language": "en", "target_language": "de"}
    answer = httpx.post(f"{address}/v1/translate", json=body).json()
    assert (tmp_path / "saved").read_text() == answer["translations"][0]["text"] + "\n"
    translated.get_by_role("button", name="Delete").click()
    expect(page.locator("#file-list li")).to_have_count(0)


def test_the_engine_drawer_shows_the_work_of_the_engine(page: Page) -> None:
    translate(page)
    page.click("#engine summary")
    expect(page.locator("#engine .meter")).to_have_count(5)
    assert page.locator("#engine .meter", has_text="slots").locator("b").inner_text() == "8"
    expect(page.locator("#engine table")).to_contain_text("inference")


def test_the_shown_code_is_a_request_that_works(page: Page, address: str) -> None:
    translate(page)
    page.click("#code summary")
    code = page.locator("#code pre").first.inner_text()
    found = re.search(r"--data '(.*)'$", code, re.DOTALL)
    assert found is not None
    answer = httpx.post(f"{address}/v1/translate", json=json.loads(found[1])).json()
    assert answer["translations"][0]["text"] == page.inner_text("#target")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_state_breaks_a_rule_of_accessibility(browser: Browser, address: str, theme: str, width: int) -> None:
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    opened.goto(f"{address}/#en/de/")
    opened.wait_for_function("document.querySelector('#target-language').value === 'de'")

    def violations() -> list[str]:
        found = Axe().run(opened).response["violations"]
        return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]

    assert violations() == []
    translate(opened)
    for drawer in ("terms", "files", "attention", "best", "engine", "code"):
        opened.click(f"#{drawer} summary")
    opened.set_input_files("#file", {"name": "dogs.txt", "mimeType": "text/plain", "buffer": b"Two dogs run."})
    opened.get_by_role("button", name="Save", exact=True).wait_for()
    opened.wait_for_selector("#best table")
    opened.wait_for_selector("#engine .meter")
    assert violations() == []
    opened.locator("#target .word").nth(3).click()
    opened.locator("#alternatives small").first.wait_for()
    assert violations() == []
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    opened.close()
