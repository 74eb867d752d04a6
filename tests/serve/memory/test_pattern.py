"""Equal texts: letter case, numbers, placeholders and tags of a translation follow the text."""

import html

import pytest

from dragoman.serve.memory.pattern import fill, read_pattern


def filled(source: str, target: str, text: str, *, markup: bool = False) -> str | None:
    entry, query = read_pattern(source), read_pattern(text, markup=markup)
    assert entry.key == query.key
    return fill(entry, target, query, html.escape) if markup else fill(entry, target, query)


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        ("Hello  world", "Hallo Welt", "Hello world", "Hallo Welt"),
        ("hello world", "hallo Welt", "Hello world", "Hallo Welt"),
        ("Hello world", "Hallo Welt", "hello world", "Hallo Welt"),
        ("Hello world", "Hallo Welt", "HELLO WORLD", "HALLO WELT"),
        ("Hello World", "Hallo Welt", "Hello world", None),
        ("3 of 1,000 files", "3 von 1,000 Dateien", "4 of 2,500 files", "4 von 2,500 Dateien"),
        ("3 of 1,000 files", "3 von 1.000 Dateien", "4 of 1,000 files", "4 von 1.000 Dateien"),
        ("3 of 1,000 files", "3 von 1.000 Dateien", "3 of 2,000 files", None),
        ("3 or 3", "3 oder 3", "4 or 5", None),
        ("3 or 3", "3 oder 3", "4 or 4", "4 oder 4"),
        ("3 files", "drei Dateien", "4 files", None),
        ("3 files", "drei Dateien", "3 files", "drei Dateien"),
        ("5 files", "5 Dateien", "1,500 files", None),
        ("1.5 files", "1.5 Dateien", "10.25 files", "10.25 Dateien"),
        ("Dear %s", "Hallo", "Dear %s", None),
        ("Dear %s", "%s und %s", "Dear %s", None),
        ("<b>One</b> two", "<b>eins zwei", "<b>One</b> two", None),
        ("<b>One</b> two", "</b>eins<b> zwei", "<b>One</b> two", None),
        ("<b>One</b><i>two</i>", "<b>Eins<i></b>zwei</i>", "<b>One</b><i>two</i>", None),
        ("<b>One</b><br>two", "zwei<br><b>eins</b>", '<i a="b">One</i><br>two', 'zwei<br><i a="b">eins</i>'),
        ("See %s at https://a.b/c.", "Siehe %s: https://a.b/c.", "See {x} at https://d.e.", "Siehe {x}: https://d.e."),
    ],
)
def test_a_translation_has_the_values_of_its_text_or_there_is_none(
    source: str, target: str, text: str, expected: str | None
) -> None:
    assert filled(source, target, text) == expected


def test_tags_of_markup_follow_the_text_and_words_are_escaped() -> None:
    source, target = "Press <b>Save</b> & go", "<b>Sichern</b> & los"
    found = filled(source, target, 'Press <i class="x">Save</i> &amp; go', markup=True)
    assert found == '<i class="x">Sichern</i> &amp; los'


def test_escaped_tags_of_a_text_never_become_tags() -> None:
    source = read_pattern("Press <b>Save</b>")
    assert read_pattern("Press &lt;b&gt;Save&lt;/b&gt;", markup=True).key != source.key
    assert filled("Press Save", "<script>", "Press Save", markup=True) is None


def test_a_comment_is_one_slot_and_one_that_does_not_end_is_text_of_any_length() -> None:
    assert read_pattern("a <!-- b > c --> d", markup=True).values == ("<!-- b > c -->",)
    text = "<!--" * 50_000
    assert read_pattern(text, markup=True) == (text, ())
