"""The lines of terms: what is wrong is said with its line, counted from 1, and is not used."""

from playwright.sync_api import Page, expect

from tests.serve.page.conftest import translate
from tests.support.cases import cases

CASES = cases(__file__)

TEXT = "A man in a blue shirt is standing on a ladder."


def test_a_line_that_is_no_term_is_named_and_not_used(page: Page) -> None:
    page.click("#terms summary")
    for lines, problems in CASES["a line that is no term is named and not used"]:
        page.fill("#terms-text", lines)
        translate(page, TEXT)
        expect(page.locator("#terms-problem p")).to_have_text(problems)
        valid = {line.split("=")[0].strip() for line in lines.split("\n") if "=" in line} - {""}
        expect(page.locator("#terms-applied tr")).to_have_count(len(valid))
        assert set(page.locator("#terms-applied td:first-child").all_inner_texts()) == valid
        assert page.inner_text("#error") == ""


def test_a_problem_that_the_server_finds_names_line_and_term(opened: Page) -> None:
    opened.click("#terms summary")
    opened.fill("#terms-text", f"\nladder = Stiege\nshirt = {'x' * 300}")
    opened.fill("#source", TEXT)
    expect(opened.locator("#error")).to_contain_text("Terms, line 3, “shirt”: ")
    assert "terms[" not in opened.inner_text("#error")
