"""Text to ids and back: nothing is lost, and a file that is not Dragoman's tokenizer is refused."""

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from model.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer, TokenizerError, train_tokenizer

ALPHABET = "abcdefghijklmnopqrstuvwxyzäöüß.,!?0123456789"
LINES = [f"{ALPHABET[i:]} {ALPHABET[:i]}" for i in range(len(ALPHABET))]
WORDS = st.lists(st.text(ALPHABET, min_size=1), max_size=8)


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_tokenizer(LINES, vocabulary_size=200)


def train_foreign(**options: Any) -> bytes:
    """Returns a SentencePiece model that another program might have made."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@given(words=WORDS)
def test_text_comes_back_as_it_was(trained: Tokenizer, words: list[str]) -> None:
    text = " ".join(words)
    assert trained.decode(trained.encode(text)) == text


@given(digits=st.text("0123456789", min_size=1))
def test_every_digit_is_a_token_of_its_own(trained: Tokenizer, digits: str) -> None:
    """So a number can be copied whatever digits it has."""
    pieces = [trained.decode([token_id]) for token_id in trained.encode(f"a{digits}")]
    assert pieces[-len(digits) :] == list(digits)


def test_digits_stay_single_even_where_numbers_repeat() -> None:
    years = train_tokenizer([f"in 1984 and 2025 {word}" for word in ("we", "they", "you")] * 20, vocabulary_size=60)
    assert [years.decode([token_id]) for token_id in years.encode("1984")][-4:] == ["1", "9", "8", "4"]


def test_white_space_and_compatibility_forms_are_normalised(trained: Tokenizer) -> None:
    assert trained.encode("  ab\tc \n") == trained.encode("ab c")
    assert trained.encode("ﬁve") == trained.encode("five")


def test_many_lines_are_encoded_as_each_alone(trained: Tokenizer) -> None:
    lines = ["abc 12", "", "z."]
    assert trained.encode_lines(lines) == [trained.encode(line) for line in lines]
    assert trained.encode_lines(tuple(lines)) == trained.encode_lines(lines)


def test_an_unknown_character_becomes_the_unknown_token(trained: Tokenizer) -> None:
    assert UNK_ID in trained.encode("abc 語")


def test_no_text_holds_a_special_token(trained: Tokenizer) -> None:
    for text in ("<s> a </s> <pad>", "<unk>"):
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(trained.encode(text))


def test_special_tokens_vanish_from_text(trained: Tokenizer) -> None:
    ids = trained.encode("abc")
    assert trained.decode([BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]) == "abc"


def test_the_vocabulary_is_no_larger_than_asked_for(trained: Tokenizer) -> None:
    assert 4 + len(set(ALPHABET)) < trained.vocabulary_size <= 200
    assert trained.decode([trained.vocabulary_size - 1])


def test_blank_lines_teach_nothing() -> None:
    assert train_tokenizer(["", *LINES, "  "], vocabulary_size=200).model == train_tokenizer(LINES, 200).model


def test_a_file_is_loaded_as_it_was_trained(trained: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained.model)
    assert Tokenizer.load(path).encode("abc 12.") == trained.encode("abc 12.")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 100, bytes(range(256))])
def test_garbage_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"not a SentencePiece model|special ids are"):
        Tokenizer.load(path)


def test_half_a_model_is_refused(trained: Tokenizer) -> None:
    with pytest.raises(TokenizerError):
        Tokenizer(trained.model[: len(trained.model) // 2])


@pytest.mark.parametrize(
    "options",
    [{}, {"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2}, {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": -1}],
)
def test_other_special_ids_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(TokenizerError, match=r"special ids are .*, expected \(0, 1, 2, 3\)"):
        Tokenizer(train_foreign(**options))
