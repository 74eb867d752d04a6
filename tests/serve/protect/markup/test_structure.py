"""Whatever the translation and its alignment are, each tag occurs once, inside of the tags that it was inside of."""

from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dragoman.serve.protect.markup.elements import MarkupFormat, MarkupOptions
from tests.support.markup import documents, shuffled, structure_of, translate_markup

# One document of five is large.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
# Each begins a tag or a comment wherever it stands.
TAGS = ("<a", "<b", "<p", "<!", "</a", "</b", "</p")
FORMATS = st.sampled_from(["html", "xml"])


def test_the_structure_of_random_documents_is_kept(*, thorough: bool) -> None:
    """Also if attention is noise."""

    @settings(max_examples=5000 if thorough else 100, suppress_health_check=SLOW)
    @given(documents(), FORMATS, st.integers(0, 2**16), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
    def check(document: str, markup_format: MarkupFormat, seed: int, noise: float, keeps: bool) -> None:
        options = MarkupOptions(markup_format, ignore_tags=frozenset(["u"] if keeps else []))
        translated = structure_of(translate_markup(document, options, shuffled(seed, noise)))
        expected = structure_of(document)
        # Text that is not translated replaces its translation.
        assert translated == (replace(expected, letters=translated.letters) if keeps else expected)

    check()


def test_a_copy_of_random_documents_differs_at_most_in_white_space(*, thorough: bool) -> None:
    @settings(max_examples=5000 if thorough else 50, suppress_health_check=SLOW)
    @given(documents(), FORMATS)
    @example('<div id="0"><b id="1">ab<img id="2"/>ab</b>ab</div>', "html")
    def check(document: str, markup_format: MarkupFormat) -> None:
        translated = translate_markup(document, MarkupOptions(markup_format))
        assert "".join(translated.split()) == "".join(document.split())

    check()


@settings(max_examples=50)
@given(st.text(alphabet="<>/abipru!-&;= \"'\n.", max_size=60), st.integers(0, 2**16))
def test_translations_of_any_html_have_its_tags(text: str, seed: int) -> None:
    """Also of malformed HTML, whose tags may stand alone."""
    translated = translate_markup(text, MarkupOptions("html"), shuffled(seed, 0.3))
    assert [translated.count(tag) for tag in TAGS] == [text.count(tag) for tag in TAGS]
