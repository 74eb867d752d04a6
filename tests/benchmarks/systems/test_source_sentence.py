"""Systems read sentences as they were written; random ones have the requested lengths."""

from pathlib import Path

from benchmarks.systems.translating import SourceSentence, draw_sentences, read_sentences, spread, write_sentences

EOS_ID = 3
LENGTHS = [(4, 7), (1, 2), (9, 1)]


def test_sentences_are_read_as_they_were_written(tmp_path: Path) -> None:
    sentences = [SourceSentence((4, 5, 3), 0, 9), SourceSentence((3,), 2, 2)]
    write_sentences(tmp_path / "sentences.json", sentences)
    assert read_sentences(tmp_path / "sentences.json") == sentences


def test_random_sentences_have_the_requested_lengths_and_end_in_eos() -> None:
    sentences = draw_sentences(1, LENGTHS, 50, EOS_ID)
    assert [(len(each.source_ids), each.min_target_tokens, each.max_target_tokens) for each in sentences] == [
        (source, target, target) for source, target in LENGTHS
    ]
    assert [each.source_ids[-1] for each in sentences] == [EOS_ID] * 3
    assert all(4 <= token_id < 50 for each in sentences for token_id in each.source_ids[:-1])


def test_random_sentences_are_the_same_for_the_same_seed() -> None:
    assert draw_sentences(1, LENGTHS, 50, EOS_ID) == draw_sentences(1, LENGTHS, 50, EOS_ID)
    assert draw_sentences(1, LENGTHS, 50, EOS_ID) != draw_sentences(2, LENGTHS, 50, EOS_ID)


def test_chosen_sentences_are_spread_over_all() -> None:
    sentences = [SourceSentence((number, 3), 0, 9) for number in range(10)]
    assert [each.source_ids[0] for each in spread(sentences, 4)] == [0, 2, 5, 7]
    assert spread(sentences, 20) == sentences
