"""The page while the server is slow, hangs or is gone."""

from playwright.sync_api import Browser, Page, Route, expect

from tests.serve.page.conftest import SENTENCES, new_page, opened_at, translate

SHADE = "id => getComputedStyle(document.querySelector(id)).color"
PAUSE, NOTE, RETRY, SILENT = 200, 1000, 2000, 5000


def hang(page: Page, address: str) -> list[Route]:
    """Returns the requests that stay without an answer, from now on."""
    held: list[Route] = []
    page.route(address, lambda route: held.append(route))  # noqa: PLW0108 - Playwright needs a function of Python
    return held


def test_an_old_translation_is_dimmed_and_the_page_says_that_the_server_hangs(browser: Browser, address: str) -> None:
    opened = opened_at(browser, address, reduced_motion="reduce")
    opened.clock.install()
    translate(opened)
    before, shade = opened.inner_text("#target"), opened.evaluate(SHADE, "#target")
    held = hang(opened, "**/v1/translate/stream")
    opened.fill("#source", "A dog.")
    assert opened.evaluate(SHADE, "#target") == opened.evaluate(SHADE, "#count") != shade
    opened.clock.run_for(PAUSE + NOTE)
    expect(opened.locator("#waiting")).to_have_text("Translating …")
    opened.clock.run_for(SILENT - NOTE)
    expect(opened.locator("#waiting")).to_have_text("The server does not answer. The page goes on waiting.")
    assert opened.inner_text("#target") == before
    held[0].continue_()
    expect(opened.locator("#target")).to_have_text("Ein Hund.")
    expect(opened.locator("#waiting")).to_have_text("")
    assert opened.evaluate(SHADE, "#target") == shade


def test_the_wait_ends_with_the_next_keystroke_and_with_an_empty_text(opened: Page) -> None:
    opened.clock.install()
    hang(opened, "**/v1/translate/stream")
    opened.fill("#source", "A dog.")
    opened.clock.run_for(PAUSE + SILENT)
    expect(opened.locator("#waiting")).not_to_have_text("")
    opened.fill("#source", "")
    expect(opened.locator("#waiting")).to_have_text("")
    opened.clock.run_for(PAUSE + SILENT)
    assert opened.inner_text("#waiting") == ""


def test_a_page_that_opens_while_the_server_hangs_says_so(browser: Browser, address: str) -> None:
    opened = new_page(browser)
    opened.clock.install()
    held = hang(opened, "**/v1/models")
    opened.goto(f"{address}/#en/de/Two dogs.")
    expect(opened.locator("#source")).to_have_attribute("placeholder", "Type or paste text")
    opened.clock.run_for(SILENT)
    expect(opened.locator("#waiting")).to_contain_text("does not answer")
    held[0].continue_()
    expect(opened.locator("#target")).to_contain_text("Hunde")
    expect(opened.locator("#waiting")).to_have_text("")


def test_the_engine_drawer_stays_open_without_the_server_and_goes_on_with_it(opened: Page) -> None:
    translate(opened)
    opened.click("#engine summary")
    expect(opened.locator("#engine .meter")).to_have_count(6)
    opened.route("**/metrics", lambda route: route.abort())
    words = "The server does not answer. These numbers are not current."
    expect(opened.locator("#engine [role=status]")).to_have_text(words)
    expect(opened.locator("#engine .meter")).to_have_count(6)
    assert opened.inner_text("#error") == ""
    opened.unroute("**/metrics")
    expect(opened.locator("#engine [role=status]")).to_have_count(0)
    expect(opened.locator("#engine")).to_have_attribute("open", "")


def test_the_best_translations_of_an_earlier_text_are_dimmed(opened: Page) -> None:
    translate(opened)
    opened.click("#best summary")
    opened.locator("#best tbody tr").first.wait_for()
    held = hang(opened, "**/v1/translate")
    translate(opened, "A dog.")
    expect(opened.locator("#best .body")).to_have_attribute("aria-busy", "true")
    assert opened.evaluate(SHADE, "#best .body") == opened.evaluate(SHADE, "#count")
    held[0].continue_()
    expect(opened.locator("#best .body")).to_have_attribute("aria-busy", "false")


def test_the_panes_grow_so_that_only_the_page_scrolls(page: Page) -> None:
    translate(page, SENTENCES * 30 + "\n\n")
    inside = "id => document.querySelector(id).scrollHeight - document.querySelector(id).clientHeight"
    assert [page.evaluate(inside, name) for name in ("#source", "#backdrop", "#target")] == [0, 0, 0]
    assert page.evaluate("document.documentElement.scrollHeight > 2 * innerHeight")
    page.click("#clear")
    page.wait_for_function("() => document.documentElement.scrollHeight < 1.2 * innerHeight")


def test_the_download_of_a_model_is_no_error_until_it_fails(opened: Page) -> None:
    """The page repeats the request, in the language of the page."""
    opened.clock.install()
    fetching, failed = "fetching de-cs", "de-cs: cannot be fetched: no connection"
    answers = [(fetching, "fetching"), (f"{fetching}, 23 of 43 MB", "fetching"), (failed, "not_ready")]

    def answer(route: Route) -> None:
        detail, reason = answers.pop(0)
        route.fulfill(status=503, json={"detail": detail, "reason": reason})

    opened.route("**/v1/translate/stream", answer)
    opened.fill("#source", "A dog.")
    error = opened.locator("#error")
    opened.clock.run_for(PAUSE)
    expect(error).to_have_text(fetching)
    opened.clock.run_for(RETRY)
    expect(error).to_have_text("fetching de-cs, 23 of 43 MB")
    assert opened.evaluate(SHADE, "#error") == opened.evaluate(SHADE, "#count")
    opened.select_option("#ui-language", "de")
    expect(error).to_have_text("de-cs wird heruntergeladen, 23 von 43 MB")
    opened.clock.run_for(RETRY)
    expect(error).to_have_text(failed)
    assert opened.evaluate(SHADE, "#error") != opened.evaluate(SHADE, "#count")
