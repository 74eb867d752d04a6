"""The pieces of a growing text make up the text for any tokens, and are final when sent."""

from collections.abc import Iterator
from functools import cache
from io import BytesIO

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import TextTokenizer, Tokenizer
from dragoman.serve.translation.streams import INCOMPLETE, TextStream

LINES = ["Grüße aus dem Süden.", "ein Haus, zwei Häuser", "日本語 と 中文", "naïve café", "a b c"] * 9


@cache
def sentencepiece_model(*, byte_fallback: bool) -> bytes:
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=400,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return model.getvalue()


@cache
def tokenizers() -> dict[str, TextTokenizer]:
    """Every kind of served tokenizer, with and without byte tokens."""
    whole, bytewise = (sentencepiece_model(byte_fallback=item) for item in (False, True))
    pieces = ("<unk>", "</s>", "\u2581foreign", *Tokenizer(bytewise).target_pieces[4:])
    return {
        "words": Tokenizer(whole),
        "bytes": Tokenizer(bytewise),
        "pieces": PieceTokenizer(bytewise, bytewise, pieces, pieces, unknown_piece="<unk>", special_pieces=("</s>",)),
    }


KINDS = ("words", "bytes", "pieces")


def pieces_of(tokenizer: TextTokenizer, ids: list[int], cuts: set[int]) -> Iterator[str]:
    """Yields the pieces of a text, given the numbers of tokens at which it is read."""
    stream = TextStream(tokenizer)
    for count in sorted(cuts):
        yield stream.grow(ids[:count])
    yield stream.end(tokenizer.decode(ids))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_pieces_of_any_tokens_make_up_their_text(kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizers()[kind]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer.target_pieces) - 1), max_size=30))
    cuts = data.draw(st.sets(st.integers(0, len(ids))))
    assert "".join(pieces_of(tokenizer, ids, cuts)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=20))
def test_the_pieces_of_any_text_make_it_up_token_by_token(kind: str, text: str) -> None:
    """Characters outside the training text become byte tokens, if the tokenizer has them."""
    tokenizer = tokenizers()[kind]
    ids = tokenizer.encode_target(text)
    pieces = list(pieces_of(tokenizer, ids, set(range(len(ids) + 1))))
    assert "".join(pieces) == tokenizer.decode(ids)
    if kind == "bytes" and INCOMPLETE not in text:
        assert not any(INCOMPLETE in piece for piece in pieces)


@pytest.mark.parametrize(
    ("kind", "text", "grown"), [("bytes", "a😀b", ["a", "😀", "b"]), ("words", "a b", ["a", " b"])]
)
def test_a_character_comes_with_its_last_byte_and_a_space_with_the_next_word(
    kind: str, text: str, grown: list[str]
) -> None:
    tokenizer = tokenizers()[kind]
    ids = tokenizer.encode_target(text)
    pieces = list(pieces_of(tokenizer, ids, set(range(len(ids) + 1))))
    assert [piece for piece in pieces if piece] == grown


def test_bytes_that_never_become_a_character_come_at_the_end() -> None:
    tokenizer = tokenizers()["bytes"]
    ids = tokenizer.encode_target("😀")[:-1]
    *before, last = pieces_of(tokenizer, ids, set(range(1, len(ids) + 1)))
    assert before == [""] * len(ids)
    assert last == tokenizer.decode(ids) != ""
