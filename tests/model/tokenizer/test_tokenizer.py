"""Text survives encoding and decoding, and invalid tokenizer files are rejected."""

import io
from pathlib import Path
from typing import Any, Literal

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.tokenizer import tokenizer as module
from dragoman.model.tokenizer.tokenizer import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    TokenizerError,
    train_tokenizer,
)

ALPHABET = "abcdefghijklmnopqrstuvwxyzäöüß.,!?0123456789"
LINES = [f"{ALPHABET[i:]} {ALPHABET[:i]}" for i in range(len(ALPHABET))]
WORDS = st.lists(st.text(ALPHABET, min_size=1), max_size=8)


KINDS = ("unigram", "bpe")


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_tokenizer(LINES, vocabulary_size=200)


@pytest.fixture(scope="module", params=KINDS)
def tagged(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer of either kind with language tokens, trained on text that resembles them."""
    words = ["gardener", "gardening", "harden", "river", "riverside", "<2de>", "de>", "<2"]
    lines = [f"{first} {second}" for first in words for second in words]
    return train_tokenizer(lines, 100, kind=request.param, target_languages=("de", "fr"))


def train_foreign(**options: Any) -> bytes:
    """Returns a SentencePiece model as another program may make it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"vocab_size": 200, **options},
    )
    return model.getvalue()


@given(words=WORDS)
def test_text_comes_back_as_it_was(trained: Tokenizer, words: list[str]) -> None:
    text = " ".join(words)
    assert trained.decode(trained.encode(text)) == text


@given(texts=st.lists(st.text(), max_size=2 * module.MIN_LIST))
def test_a_list_of_texts_has_the_tokens_of_each_and_comes_back_as_each(trained: Tokenizer, texts: list[str]) -> None:
    encoded = trained.encode_all(texts)
    assert encoded == [trained.encode(text) for text in texts]
    assert trained.decode_all(encoded) == [trained.decode(ids) for ids in encoded]


@pytest.mark.parametrize("kind", KINDS)
def test_digits_stay_single_even_where_numbers_repeat(kind: Literal["unigram", "bpe"]) -> None:
    lines = [f"in 1984 and 2025 {word}" for word in ("we", "they", "you")] * 20
    years = train_tokenizer(lines, vocabulary_size=60, kind=kind)
    assert [years.decode([token_id]) for token_id in years.encode("1984")][-4:] == ["1", "9", "8", "4"]


def test_white_space_and_compatibility_forms_are_normalized(trained: Tokenizer) -> None:
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


def test_pieces_are_written_as_in_the_vocabulary(trained: Tokenizer) -> None:
    ids = trained.encode(trained.decode(range(4, 12)))
    assert "".join(trained.pieces([*ids, EOS_ID])).replace("▁", " ").strip() == f"{trained.decode(ids)}</s>"


def test_special_tokens_vanish_from_text(trained: Tokenizer) -> None:
    assert trained.decode([BOS_ID, *trained.encode("abc"), EOS_ID, PAD_ID, PAD_ID]) == "abc"


def test_the_vocabulary_is_no_larger_than_asked_for(trained: Tokenizer) -> None:
    assert 4 + len(set(ALPHABET)) < trained.vocabulary_size <= 200
    assert trained.decode([trained.vocabulary_size - 1])


def test_the_kinds_differ() -> None:
    unigram, bpe = (train_tokenizer(LINES, 200, kind=kind) for kind in ("unigram", "bpe"))
    assert unigram.model != bpe.model
    assert bpe.vocabulary_size <= 200
    assert bpe.decode(bpe.encode("abc 12, xyz!")) == "abc 12, xyz!"


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_that_is_smaller_than_the_alphabet_is_refused(kind: Literal["unigram", "bpe"]) -> None:
    with pytest.raises(TokenizerError, match=r"^[^\n]*[Vv]ocabulary size[^\n]*$"):
        train_tokenizer(LINES, 10, kind=kind)


def test_every_target_language_has_a_token_of_its_own(tagged: Tokenizer) -> None:
    tokens = [tagged.language_token(language) for language in ("de", "fr")]
    assert len({*tokens, PAD_ID, UNK_ID, BOS_ID, EOS_ID}) == 6
    assert tagged.decode([tokens[0], *tagged.encode("river"), tokens[1]]) == "river"


@pytest.mark.parametrize("text", ["<2de>", "<2de> river", "river<2de>", "\u2581<2de>", "<2de><2fr>", " <2fr> "])
def test_no_text_holds_a_language_token(tagged: Tokenizer, text: str) -> None:
    """So input cannot switch the language."""
    assert not {tagged.language_token(language) for language in ("de", "fr")} & set(tagged.encode(text))


@pytest.mark.parametrize("language", ["cs", "", "de>"])
def test_a_language_without_a_token_is_reported(tagged: Tokenizer, language: str) -> None:
    with pytest.raises(TokenizerError, match=f"has no token <2{language}>"):
        tagged.language_token(language)


def test_text_that_looks_like_a_language_token_stays_text() -> None:
    tokenizer = Tokenizer(train_foreign(pad_id=0, unk_id=1, bos_id=2, eos_id=3, user_defined_symbols=["<2de>"]))
    with pytest.raises(TokenizerError, match="has no token <2de>"):
        tokenizer.language_token("de")


def test_words_are_cut_in_their_most_probable_ways_first(tokenizer: Tokenizer) -> None:
    word = module.WORD_START + "gardener"
    assert tokenizer.normalize(" gardener ") == word
    best = tokenizer.segmentations(word, 3)
    assert len(best) == 3
    assert best[0].ids == tokenizer.encode("gardener")
    assert {tokenizer.decode(one.ids) for one in best} == {"gardener"}
    scores = [one.log_probability for one in best]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(one.ids) for one in best}) == 3


def test_blank_lines_are_skipped() -> None:
    assert train_tokenizer(["", *LINES, "  "], vocabulary_size=200).model == train_tokenizer(LINES, 200).model


def test_a_file_is_loaded_as_it_was_trained(trained: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained.model)
    assert Tokenizer.load(path).encode("abc 12.") == trained.encode("abc 12.")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 100, bytes(range(256))])
def test_garbage_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"not a SentencePiece model|special ids"):
        Tokenizer.load(path)


def test_half_a_model_is_refused(trained: Tokenizer) -> None:
    with pytest.raises(TokenizerError):
        Tokenizer(trained.model[: len(trained.model) // 2])


@pytest.mark.parametrize(
    "options",
    [{}, {"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2}, {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": -1}],
)
def test_other_special_ids_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(TokenizerError, match=r"^special ids: expected \(0, 1, 2, 3\), got "):
        Tokenizer(train_foreign(**options))


def test_each_token_has_the_characters_of_the_text_that_it_stands_for(trained: Tokenizer) -> None:
    text = "  abc  \u00e4\u00f6 ½ 日x"
    pieces = trained.pieces(trained.encode(text))
    offsets = trained.encode_offsets(text)
    assert [place for span in offsets for place in span] == sorted(place for span in offsets for place in span)
    for piece, (start, end) in zip(pieces, offsets, strict=True):
        if start < end and piece != "<unk>" and text[end - 1] != "½":
            assert " ".join(text[start:end].split()) == piece.replace(module.WORD_START, " ").strip()


@given(ids=st.lists(st.integers(0, 80), max_size=12))
def test_each_token_has_the_characters_that_it_adds_to_the_decoded_text(trained: Tokenizer, ids: list[int]) -> None:
    offsets = trained.decode_offsets(ids)
    assert len(offsets) == len(ids)
    for place, (start, end) in enumerate(offsets):
        assert trained.decode(ids)[start:end] == trained.decode(ids[: place + 1])[start:]


def test_offsets_count_characters_and_an_incomplete_character_has_none() -> None:
    """The last byte of a character has it."""
    tokenizer = Tokenizer(train_foreign(vocab_size=320, byte_fallback=True, pad_id=0, unk_id=1, bos_id=2, eos_id=3))
    text = "é🙂x"
    for offsets in (tokenizer.encode_offsets(text), tokenizer.decode_offsets(tokenizer.encode(text))):
        found = [text[start:end] for start, end in offsets]
        assert [part for part in found if part] == ["é", "🙂", "x"]
        assert len(found) > 6
