"""A translator with a running engine, with and without a result cache."""

from collections.abc import Iterator

import pytest

from tests.support.translators import TranslatorBench


@pytest.fixture
def bench() -> Iterator[TranslatorBench]:
    with TranslatorBench() as bench:
        yield bench


@pytest.fixture
def caching() -> Iterator[TranslatorBench]:
    with TranslatorBench(cache_bytes=1 << 20) as bench:
        yield bench
