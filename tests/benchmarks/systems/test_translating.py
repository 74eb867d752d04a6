"""A turn translates all sentences at once, or some one at a time, after a warm-up, and counts tokens."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.systems.translating import Batching, SourceSentence, Translator, write_sentences

SENTENCES = [SourceSentence((number, 3), 0, 9) for number in range(20)]


class Repeater(Translator):
    """Translates each source into itself, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, str]] = []

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        self.calls.append((len(sentences), beam_size, str(batching)))
        return [sentence.source_ids for sentence in sentences]


@pytest.fixture(name="repeater")
def _repeater() -> Repeater:
    return Repeater()


@pytest.fixture(name="sentences")
def _sentences(tmp_path: Path) -> str:
    write_sentences(tmp_path / "sentences.json", SENTENCES)
    return str(tmp_path / "sentences.json")


def test_all_sentences_are_translated_together(sentences: str, repeater: Repeater) -> None:
    work = repeater.plan(sentences=sentences, beam_size=4, batching="8:examples")
    repeater.calls.clear()
    assert work(1) == 40
    assert repeater.calls == [(20, 4, "8:examples")]


def test_some_are_translated_one_at_a_time(sentences: str, repeater: Repeater) -> None:
    work = repeater.plan(sentences=sentences, beam_size=1, batching="8:examples", alone=3)
    repeater.calls.clear()
    assert work(1) == 6
    assert repeater.calls == [(1, 1, "8:examples")] * 3


@pytest.mark.parametrize(("alone", "sizes"), [(None, [3]), (4, [1, 1])])
def test_a_plan_warms_up_with_a_part_of_the_work(
    sentences: str, repeater: Repeater, alone: int | None, sizes: list[int]
) -> None:
    repeater.plan(sentences=sentences, beam_size=1, batching="8:examples", alone=alone)
    assert [size for size, _, _ in repeater.calls] == sizes


def test_translations_are_written_in_the_order_of_the_sentences(
    sentences: str, repeater: Repeater, tmp_path: Path
) -> None:
    repeater.plan(sentences=sentences, beam_size=1, batching="8:examples", output=str(tmp_path / "out.json"))(1)
    assert json.loads((tmp_path / "out.json").read_text()) == [[number, 3] for number in range(20)]
