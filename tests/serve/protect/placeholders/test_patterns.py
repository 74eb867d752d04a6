"""Placeholders of programs, addresses and names are found whole, and ordinary text has none."""

from time import thread_time

import pytest

from dragoman.serve.protect.placeholders.icu import find_texts
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from tests.support.cases import cases

CASES = cases(__file__)

FINDER = Finder(KINDS)
MAX_SECONDS = 5.0
PRINTF = ["%s", "%1$d", "%%", "%(name)s", "%-5.2f", "%lld", "%@", "%1$@", "%<count>d", "%n", "%1", "%L1"]
BRACES = ["{}", "{0}", "{name!r:>5}", "{0:>10}", "{0,10:N2}", "{user-name}", "{$name}", "{'@'}", "{name:{width}}"]
ARGUMENTS = ["{0, number, #.##}", "{count, number, ::currency/USD}", "{d, date, short}", "#", "#st", "#th"]
MUSTACHES = ["{{ user }}", "{{{x}}}", "{{- var}}", "{{value, number(minimumFractionDigits: 2)}}", "{% if x %}"]
PIPES = ["{{ x | pipe }}", "{{ day | date:'short' }}", "{{ {a: 1} | json }}"]
INTERPOLATIONS = ["${HOME}", "${a['b']}", "#{x}", "%{count}", "$name", "$(name)", "%name%", ":name", "@:menu.open"]
NESTINGS = ["$t(menu.open)", "$t(common:save)", '$t(key, {"count": {{n}} })', '$t(key, { "context": "x" })']
TAGS = ['<x id="1"/>', "<b>", "</b>", "<%= x %>", "<% if a % b %>"]
ADDRESSES = [
    *("https://a.example/b?c=d", "sftp://a.example", "git+ssh://git@a.example/b/c.git", "postgres://u:p@h:5432/db"),
    *("http://[::1]:8080/a", "http://[2001:db8::1]", "https://a.example:8080/x?y=(1)&z#t"),
    *("https://a.example/wiki/Rust_(language)", "https://a.example/%7Bx%7D", "www.a.example"),
    *("mailto:a@b.example", "tel:+49-30-123"),
]
EMAILS = ["a.b@c.example", "o'neil@example.com", "tickets%40fair@example.org", "a+b@c.example.org", "a@[192.0.2.1]"]
NAMES = ["@anna", "@anna.smith", "@kim@social.example", "@angular/core", "#tag"]
PATHS = ["/usr/bin/x", "~/.bashrc", "../b", "C:\\Users\\a.txt", "\\\\server\\share"]
ALL = [
    *(*PRINTF, *BRACES, *ARGUMENTS, *MUSTACHES, *PIPES, *INTERPOLATIONS, *NESTINGS),
    *(*TAGS, *ADDRESSES, *EMAILS, *NAMES, *PATHS),
]


@pytest.mark.parametrize("text", ALL)
def test_a_placeholder_is_found_whole(text: str) -> None:
    assert FINDER.texts(f"ab {text} cd") == [text]


@pytest.mark.parametrize("text", ALL)
def test_punctuation_around_a_placeholder_is_not_a_part_of_it(text: str) -> None:
    assert FINDER.texts(f'ab ("{text}"), cd {text}.') == [text, text]


@pytest.mark.parametrize("text", CASES["ordinary text has no placeholder"])
def test_ordinary_text_has_no_placeholder(text: str) -> None:
    assert FINDER.texts(text) == []


def test_a_name_between_percent_signs_ends_before_no_letter() -> None:
    assert FINDER.texts("%dx%d pixels of %name%.") == ["%d", "%d", "%name%"]


@pytest.mark.parametrize("part", CASES["hostile text takes time in proportion to its size"])
def test_hostile_text_takes_time_in_proportion_to_its_size(part: str) -> None:
    """A nanosecond for each pair of characters would exceed the limit."""
    text, begun_seconds = part * (100_000 // len(part)), thread_time()
    assert sum(placeholder.end - placeholder.start for placeholder in FINDER.find(text)) <= len(text)
    find_texts(f"{{n, plural, other {{{text}")
    assert thread_time() - begun_seconds < MAX_SECONDS
