"""The usual parsers, which never end."""

from collections.abc import Iterator
from itertools import count

from dragoman.serve.documents.parsers import PARSE
from dragoman.serve.edge.form_parser import PARSE_FORM
from dragoman.serve.glossaries.parsers import READ
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import Parser


def _compute(_: list[Item]) -> Iterator[Item]:
    yield sum(count())


PARSERS: dict[str, Parser] = dict.fromkeys((PARSE, READ, PARSE_FORM), _compute)
