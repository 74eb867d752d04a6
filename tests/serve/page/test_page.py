"""The page in a real browser: what is typed is translated, words are linked, and everything works by keyboard."""

import json
import re
from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import Literal

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from google.protobuf import json_format
from playwright.sync_api import Browser, Page, Route, expect

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from tests.serve.page.conftest import PAIR, SENTENCES, cells_of_the_map, new_page, opened_at, translate
from tests.serve.page.shown_code import data_of, forms_of_the_request, posted, printed_by
from tests.support.cases import cases
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.live import LiveService, eventually, run_service

CASES = cases(__file__)

# Its translation takes several times as long as a keystroke.
# Equal sentences would be decoded once.
LONG = " ".join(
    f"{number} men in blue shirts stand on a ladder and look at {number + 1} dogs." for number in range(120)
)
SECOND = "Two dogs run over the green grass."
DOUBTFUL = "Quantum tax law abolishes seven melancholy carburetors."


def lit(page: Page, side: str) -> list[str]:
    return page.locator(f"#{side} .lit").all_inner_texts()


def test_typing_translates_like_the_interface_and_screen_readers_hear_each_sentence(
    page: Page, live: LiveService
) -> None:
    translate(page)
    answer = live.post({"text": SENTENCES, **PAIR}).json()
    assert page.inner_text("#target") == answer["translations"][0]["text"]
    assert page.inner_text("#route") == f"Model {answer['model']}"
    spoken = page.locator("#announcer p").all_inner_texts()
    assert " ".join(spoken) == page.inner_text("#target")
    assert len(spoken) == 2


def test_typing_on_ends_the_translation_in_progress_and_frees_its_slot(page: Page, live: LiveService) -> None:
    def cancelled() -> float:
        return live.metric("requests_total", method="translate_stream", outcome="cancelled")

    before = cancelled()
    # A fast machine may finish one before the next keystroke, and a slow one may not have sent it.
    for milliseconds in range(10, 410, 10):
        page.fill("#source", LONG)
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(milliseconds)
        page.fill("#source", "A")
        eventually(lambda: live.metric("inflight_requests") == 0)
        if cancelled() > before:
            break
    eventually(lambda: cancelled() > before)
    eventually(lambda: live.metric("sequences_running") == 0)
    page.click("#engine summary")
    assert page.locator("#engine .meter", has_text="slots").locator("b").inner_text() == "8"
    expect(page.locator("#engine table")).to_contain_text("inference")
    ended = page.locator("#engine .meter", has_text="ended early").locator("b")
    eventually(lambda: ended.inner_text() == f"{cancelled():,.0f}")


def test_a_word_below_the_mouse_or_the_caret_lights_its_partners(page: Page) -> None:
    translate(page)
    page.locator("#target .word", has_text="Leiter").hover()
    eventually(lambda: (lit(page, "target"), lit(page, "backdrop")) == (["Leiter"], ["ladder"]))
    box = page.locator("#backdrop span", has_text="dogs").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    eventually(lambda: (lit(page, "target"), lit(page, "backdrop")) == (["Hunde"], ["dogs"]))
    page.mouse.move(0, 0)
    page.focus("#source")
    page.evaluate("at => document.querySelector('#source').setSelectionRange(at, at)", SENTENCES.index("ladder") + 1)
    expect(page.locator("#target .lit")).to_have_text(["Leiter"])


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
    curl, python, _ = forms_of_the_request(page, 3)
    assert posted(curl)["translations"][0]["text"] == chosen
    assert printed_by(python) == chosen
    start = json.loads(data_of(curl))["target_prefix"]
    assert chosen.startswith(start)
    assert len(start.split()) == 4, "the choice is the fourth word"


def test_an_alternative_in_one_sentence_keeps_the_links_of_all(page: Page) -> None:
    translate(page)
    first, _ = page.inner_text("#target").split(". ")
    page.locator("#target .word", has_text="grüne").click()
    option = page.locator("#alternatives [role=option] small").first
    option.wait_for()
    chosen = page.locator("#alternatives [role=option]").first.inner_text().split("\n")[0]
    option.click()
    expect(page.locator("#target")).to_have_text(f"{first}. {chosen}")
    for word, partner in (("Leiter", "ladder"), ("Hunde", "dogs")):
        page.locator("#target .word", has_text=word).hover()
        expect(page.locator("#backdrop .lit")).to_have_text([partner])
    assert page.locator("#target .word").last.get_attribute("title") != "Click for alternatives"
    expect(page.locator("#code")).not_to_have_attribute("open", "")
    curl, *_ = forms_of_the_request(page, 3)
    assert posted(curl)["translations"][0]["text"] == chosen
    expect(page.locator("#code .note")).to_contain_text("sentence 2 alone")


def test_words_have_their_probabilities_and_the_least_certain_sentence_is_named(page: Page, live: LiveService) -> None:
    translate(page, DOUBTFUL)
    answer = live.post({"text": DOUBTFUL, **PAIR, "options": {"token_scores": True}}).json()["translations"][0]
    percent_per_token = round(100 * exp(answer["score"] / (answer["target_tokens"] + 1)))
    assert page.inner_text("#certainty") == f"Low confidence: {percent_per_token} % per token"
    for word in page.locator("#target .word").all():
        percent = re.search(r"(\d+) %", word.get_attribute("title") or "")
        assert percent is not None
        probability, classes = int(percent[1]), (word.get_attribute("class") or "").split()
        if probability not in (25, 60):  # rounded
            assert ("unsure" in classes, "doubtful" in classes) == (25 < probability < 60, probability < 25)
    translate(page, f"A man is standing on a ladder. {DOUBTFUL}")
    expect(page.locator("#certainty")).to_contain_text("Least certain: sentence 2")


def test_a_sentence_is_spoken_once_when_complete(page: Page) -> None:
    """None ends a translation; the next text belongs to another one."""
    for texts, expected in CASES["a sentence is spoken once when complete"]:
        page.evaluate(
            """async (texts) => {
                const {beginSpeaking, speak} = await import("/page/js/announcer.js");
                texts.forEach((text, at) => {
                    if (at === 0 || texts[at - 1] === null) beginSpeaking();
                    speak(text ?? texts[at - 1], text === null);
                });
            }""",
            texts,
        )
        assert page.locator("#announcer p").all_inner_texts() == expected


def test_a_text_from_right_to_left_is_set_so(page: Page) -> None:
    """Each line by itself. The words that are lit lie below those that are typed."""
    translate(page, "\u05e9\u05dc\u05d5\u05dd \u05db\u05dc\u05d1\nTwo dogs.")
    for element in ("#source", "#backdrop"):
        assert page.evaluate("id => getComputedStyle(document.querySelector(id)).direction", element) == "rtl"
    pane = page.locator("#backdrop").bounding_box()
    hebrew, english = (page.locator("#backdrop span").nth(index).bounding_box() for index in (0, 2))
    assert pane is not None
    assert hebrew is not None
    assert english is not None
    assert english["x"] < pane["x"] + pane["width"] / 2 < hebrew["x"]


def test_nothing_moves_if_the_reader_wants_less_motion(page: Page) -> None:
    page.evaluate("target.classList.add('growing')")
    cursor = "getComputedStyle(target, '::after').animationName"
    assert page.evaluate(cursor) == "blink"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(cursor) == "none"


def test_the_translation_is_copied_also_without_the_clipboard_of_secure_pages(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    translate(page)
    page.evaluate("kept = navigator.clipboard, 0")
    for hide in ("0", "Object.defineProperty(navigator, 'clipboard', {value: undefined}), 0"):
        page.evaluate("kept.writeText('')")
        page.evaluate(hide)
        page.click("#copy")
        expect(page.locator("#copy")).to_have_text("Copied")
        assert page.evaluate("kept.readText()") == page.inner_text("#target")


def refusal(answer: tuple[int, str] | None) -> Callable[[Route], None]:
    """Answers with a status and a reason; None breaks the connection."""

    def respond(route: Route) -> None:
        if answer is None:
            route.abort()
        else:
            route.fulfill(status=answer[0], json={"reason": answer[1], "detail": "text[0]: of no use"})

    return respond


def test_errors_are_said_in_words_and_leave_no_translation_of_another_text(opened: Page) -> None:
    for answer, words in CASES["errors are said in words"]:
        translate(opened)
        opened.route("**/v1/translate/stream", refusal(answer))
        opened.fill("#source", "A dog.")
        expect(opened.locator("#error")).to_have_text(words)
        assert opened.inner_text("#target") == ""
        opened.unroute("**/v1/translate/stream")


def test_a_page_opened_while_the_server_starts_waits_for_it(browser: Browser, address: str) -> None:
    opened = new_page(browser)
    opened.clock.install()
    opened.route("**/v1/models", lambda route: route.fulfill(status=503, json={"reason": "not_ready"}))
    opened.goto(f"{address}/#en/de/Two dogs.")
    expect(opened.locator("#error")).to_contain_text("loads its models")
    opened.unroute("**/v1/models")
    opened.clock.fast_forward(2000)
    expect(opened.locator("#target")).to_contain_text("Hunde")
    assert opened.inner_text("#error") == ""


def test_a_pivot_is_named(browser: Browser, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("models")
    for name, prefix in (("fr-en", 10), ("en-de", 17)):
        put_bundle(folder / name, tokenizer, direction(name, prefix), aligned=True)
    with run_service(folder, load=load_fakes) as live:
        opened = new_page(browser)
        opened.goto(f"{live.http_url}/#fr/de/house")
        expect(opened.locator("#route")).to_have_text("Via English: fr-en, then en-de")
        opened.click("#attention summary")
        expect(opened.locator("#attention .note")).to_contain_text("Through a third language")
        opened.locator("#target .word").first.click()
        words = "Through a third language there is no other way to choose."
        expect(opened.locator("#alternatives")).to_have_text(words)
        opened.keyboard.press("Escape")
        opened.click("#best summary")
        expect(opened.locator("#best .note")).to_contain_text("Through a third language")
        opened.close()


def opacities(weights: list[list[float]]) -> list[float]:
    """Returns how opaque cells of these weights are."""
    return [max(0, min(1, item)) ** 0.5 for row in weights for item in row]


def test_the_attention_map_has_the_weights_of_the_interface(page: Page, live: LiveService, tmp_path: Path) -> None:
    translate(page)
    page.click("#attention summary")
    words = live.post({"text": SENTENCES, **PAIR, "options": {"alignments": "words"}}).json()
    weights = opacities(words["translations"][0]["alignments"][0]["weights"])
    eventually(lambda: cells_of_the_map(page) == pytest.approx(weights, abs=1e-3))
    page.select_option("#map-sentence", index=1)
    for layer, head in (("0", "1"), ("2", "all")):
        page.select_option("#map-layer", layer)
        page.select_option("#map-head", head)
        expect(page.locator("#attention .note")).to_contain_text(f"Layer: {layer}. Head: {head}")
        pairs = [{"text": SECOND, "translation": page.inner_text("#target").split(". ")[1]}]
        place = {"layer": int(layer)} | ({} if head == "all" else {"head": int(head)})
        answer = live.post({"pairs": pairs, **PAIR, **place}, path="/v1/attention").json()
        expected = pytest.approx(opacities(answer["attentions"][0]["alignment"]["weights"]), abs=1e-3)
        eventually(lambda expected=expected: cells_of_the_map(page) == expected)  # type: ignore[misc]
    for name, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.expect_download() as download:
            page.click(f"text=Save as {name.upper()}")
        download.value.save_as(tmp_path / name)
        assert download.value.suggested_filename == f"attention-layer-2-head-all.{name}"
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "Layer: 2. Head: all" in (tmp_path / "svg").read_text()


def test_a_server_without_attention_per_head_or_files_says_so(opened: Page) -> None:
    problem = {"reason": "invalid", "detail": "model: expected another"}
    opened.route("**/v1/attention", lambda route: route.fulfill(status=400, json=problem))
    translate(opened)
    opened.click("#attention summary")
    expect(opened.locator("#attention .note")).to_contain_text("this mean only")
    assert opened.locator("#map-layer").count() == 0
    opened.route("**/v1/documents**", lambda route: route.fulfill(status=404, json={"reason": "not_found"}))
    opened.set_input_files("#file", {"name": "dogs.txt", "mimeType": "text/plain", "buffer": b"Two dogs run."})
    expect(opened.locator("#file-list li")).to_contain_text("takes no files")


def test_markup_stays_text_and_html_keeps_its_tags_and_runs_no_script(page: Page) -> None:
    page.fill("#source", "A man <img src=x onerror=document.title='reached'> sleeps.")
    page.wait_for_selector("#target .word")
    assert page.locator("#target img").count() == 0
    page.fill("#source", "")
    page.check("#html")
    page.fill("#source", "A <b>man</b> sleeps.<script>parent.document.title = 'reached'</script>")
    expect(page.locator("#target")).to_have_text(re.compile(r"<b>.*</b>"))
    expect(page.locator("#preview")).to_be_visible()
    expect(page.frame_locator("#preview").locator("b")).to_have_count(1)
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
    opened = new_page(browser)
    opened.goto(page.url)
    expect(opened.locator("#source")).to_have_value(SENTENCES)
    expect(opened.locator("#target")).to_have_text(page.inner_text("#target"))


def test_another_address_shows_its_text(page: Page) -> None:
    """Also if it was written by hand, so that it has a lone percent sign."""
    translate(page)
    page.evaluate("location.hash = '#en/fr/Two dogs run at 100 %', 0")
    expect(page.locator("#source")).to_have_value("Two dogs run at 100 %")
    expect(page.locator("#target")).to_contain_text("chiens")


def test_the_page_speaks_the_language_of_its_reader(browser: Browser, address: str) -> None:
    placeholders = {"de-DE": "Text eingeben", "fr-FR": "Saisir", "cs-CZ": "Napište", "it-IT": "Type"}
    for locale, placeholder in placeholders.items():
        opened = new_page(browser, locale=locale)
        opened.goto(address)
        expect(opened.locator("#source")).to_have_attribute("placeholder", re.compile(placeholder))


def test_terms_have_their_given_translations(page: Page, live: LiveService) -> None:
    dictionary = {**PAIR, "entries": [{"source": "ladder", "targets": "Stiege"}]}
    stored = live.post({"name": "tools", "dictionaries": [dictionary]}, path="/v1/glossaries").json()
    page.click("#terms summary")
    page.fill("#terms-text", "shirt = Kittel | Kittels\nblue =")
    page.get_by_label("tools").check()
    translate(page, "A man in a blue shirt is standing on a ladder.")
    expect(page.locator("#terms-applied tr")).to_have_count(3)
    for term in ("blue", "Kittel", "Stiege"):
        assert term in page.inner_text("#target")
    page.get_by_label("tools").uncheck()
    expect(page.locator("#terms-applied tr")).to_have_count(2)
    httpx.delete(f"{live.http_url}/v1/glossaries/{stored['id']}")


def test_a_dropped_file_is_translated_saved_and_deleted(page: Page, live: LiveService, tmp_path: Path) -> None:
    page.evaluate("""() => {
        const files = new DataTransfer();
        files.items.add(new File(["Two dogs run.\\n"], "dogs.txt", {type: "text/plain"}));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
    }""")
    translated = page.locator("#file-list li", has_text="dogs.txt")
    with page.expect_download() as download:
        translated.get_by_role("button", name="Save").click()
    download.value.save_as(tmp_path / "saved")
    answer = live.post({"text": "Two dogs run.", **PAIR}).json()
    assert (tmp_path / "saved").read_text() == answer["translations"][0]["text"] + "\n"
    translated.get_by_role("button", name="Delete").click()
    expect(page.locator("#file-list li")).to_have_count(0)


@pytest.mark.parametrize("html", [False, True])
def test_every_form_of_the_shown_code_works(page: Page, live: LiveService, *, html: bool) -> None:
    """Also for HTML in a detected language."""
    if html:
        page.select_option("#source-language", "auto")
        page.check("#html")
        page.fill("#source", f"<p>{SENTENCES}</p>")
        expect(page.locator("#target")).to_contain_text("<p>Ein Mann")
    else:
        translate(page)
    curl, python, grpc, deepl, libretranslate = forms_of_the_request(page)
    expected = page.inner_text("#target")
    assert posted(curl)["translations"][0]["text"] == expected
    assert html or printed_by(python) == expected
    message = json_format.ParseDict(json.loads(data_of(grpc)), TranslateRequest())
    assert live.call(message).translations[0].text == expected
    assert posted(deepl)["translations"][0]["text"] == expected
    assert posted(libretranslate)["translatedText"] == expected


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_no_state_breaks_a_rule_of_accessibility(
    browser: Browser, address: str, width: int, theme: Literal["light", "dark"]
) -> None:
    opened = opened_at(browser, address, viewport={"width": width, "height": 900}, color_scheme=theme)

    def violations() -> list[str]:
        found = Axe().run(opened).response["violations"]
        return [f"{result['id']}: {node['html']}" for result in found for node in result["nodes"]]

    assert violations() == []
    translate(opened)
    for drawer in ("terms", "files", "attention", "best", "engine", "code"):
        opened.click(f"#{drawer} summary")
    opened.set_input_files("#file", {"name": "dogs.txt", "mimeType": "text/plain", "buffer": b"Two dogs run."})
    opened.get_by_role("button", name="Save", exact=True).wait_for()
    opened.wait_for_selector("#best table")
    opened.wait_for_selector("#engine .meter")
    opened.select_option("#map-layer", "0")
    opened.wait_for_selector("#map-head")
    opened.locator("#target .word").nth(3).click()
    opened.locator("#alternatives small").first.wait_for()
    assert violations() == []
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    opened.keyboard.press("Escape")
    opened.fill("#terms-text", "ladder = Stiege")
    opened.locator("#terms-applied tr").first.wait_for()
    opened.fill("#terms-text", "")
    opened.check("#html")
    opened.locator("#preview").wait_for()
    assert violations() == []
    opened.route("**/v1/translate", lambda route: route.fulfill(status=503, json={"reason": "not_ready"}))
    opened.fill("#source", "A <b>dog</b>.")
    expect(opened.locator("#error")).not_to_be_empty()
    opened.evaluate("document.querySelector('#key-dialog').showModal()")
    assert violations() == []
