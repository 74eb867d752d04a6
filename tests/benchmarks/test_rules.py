"""The texts and the parser of the rules of placeholders, terms and messages."""

import shutil

import pytest

from benchmarks.rules.__main__ import read_structures
from benchmarks.rules.texts import MessageGrammar, bounded_cases, short_texts
from dragoman.serve.protect.placeholders.icu import find_texts
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from tests.support.paths import ROOT

CLIENTS = ROOT / ".clients"
FINDER = Finder(KINDS)
needs_parser = pytest.mark.skipif(
    shutil.which("node") is None or not (CLIENTS / "node_modules" / "@formatjs").is_dir(),
    reason="needs node and `make clients`",
)


def test_a_sentence_has_its_placeholder() -> None:
    cases = [*bounded_cases("en", "de"), *short_texts()]
    assert all(FINDER.texts(case.text) == [case.kept] for case in cases if case.term is None)


def test_messages_are_distinct_and_follow_from_their_seed() -> None:
    messages = list(MessageGrammar(1).messages(100))
    assert len(set(messages)) == 100
    assert messages == list(MessageGrammar(1).messages(100))


@needs_parser
def test_another_parser_reads_every_message() -> None:
    messages = list(MessageGrammar(2).messages(50))
    for message, structure in zip(messages, read_structures(messages, CLIENTS), strict=True):
        assert structure is not None
        assert 0 < len(structure["texts"]) <= len(find_texts(message))


@needs_parser
def test_a_lost_number_or_branch_is_another_structure() -> None:
    message = "{n, plural, one {# dog} other {# dogs}}"
    others = [message.replace("# dogs", "dogs"), message.replace("one {# dog} ", ""), "{n, plural, one {# dog}"]
    first, *rest = read_structures([message, *others, message.replace("# dogs", "Hunde #")], CLIENTS)
    assert first is not None
    same = [other is not None and other["structure"] == first["structure"] for other in rest]
    assert same == [False, False, False, True]
