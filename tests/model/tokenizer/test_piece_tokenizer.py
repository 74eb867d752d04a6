"""The tokenizer of imported models: pieces by SentencePiece, ids by vocabulary, no special pieces from text."""

import pytest

from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import Tokenizer, TokenizerError, train_tokenizer

LINES = ("alpha beta gamma", "one two three", "house garden river")


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_tokenizer([line for line in LINES for _ in range(9)], vocabulary_size=60)


@pytest.fixture(scope="module")
def pieces(trained: Tokenizer) -> list[str]:
    """The vocabulary in reverse, so that its ids differ from SentencePiece's."""
    return list(reversed(trained.source_pieces))


def make(trained: Tokenizer, pieces: list[str], unknown: str = "<unk>") -> PieceTokenizer:
    special = ("</s>", "<pad>", "<s>")
    return PieceTokenizer(trained.model, trained.model, pieces, pieces, unknown_piece=unknown, special_pieces=special)


@pytest.mark.parametrize("text", ["alpha", "two  three alpha.", " gardens", ""])
def test_ids_are_those_of_the_vocabulary(trained: Tokenizer, pieces: list[str], text: str) -> None:
    assert [pieces[number] for number in make(trained, pieces).encode(text)] == trained.pieces(trained.encode(text))


@pytest.mark.parametrize("text", ["alpha", "two  three alpha.", " gardens", ""])
def test_ids_of_translations_are_of_the_target_vocabulary(trained: Tokenizer, pieces: list[str], text: str) -> None:
    source, target = list(trained.source_pieces), pieces
    models = (trained.model, trained.model)
    tokenizer = PieceTokenizer(*models, source, target, unknown_piece="<unk>", special_pieces=("</s>", "<s>"))
    expected = trained.pieces(trained.encode(text))
    assert [tokenizer.target_pieces[number] for number in tokenizer.encode_target(text)] == expected
    assert tokenizer.target_unk_id == pieces.index("<unk>") != tokenizer.unk_id


@pytest.mark.parametrize("text", LINES)
def test_text_comes_back(trained: Tokenizer, pieces: list[str], text: str) -> None:
    tokenizer = make(trained, pieces)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_piece_that_the_vocabulary_lacks_is_unknown(trained: Tokenizer, pieces: list[str]) -> None:
    (whole,) = trained.pieces(trained.encode("alpha"))[:1]
    tokenizer = make(trained, [piece for piece in pieces if piece != whole])
    assert tokenizer.encode("alpha")[0] == tokenizer.unk_id == tokenizer.source_pieces.index("<unk>")
    assert tokenizer.decode([tokenizer.unk_id]) == "⁇"


def test_a_piece_that_the_sentencepiece_model_lacks_is_spelled(trained: Tokenizer, pieces: list[str]) -> None:
    tokenizer = make(trained, [*pieces, "▁日本", "語"])
    assert tokenizer.decode([*tokenizer.encode("alpha"), len(pieces), len(pieces) + 1]) == "alpha 日本語"


def test_special_pieces_vanish_and_are_never_found_in_text(trained: Tokenizer, pieces: list[str]) -> None:
    tokenizer = make(trained, pieces)
    special = [pieces.index(piece) for piece in ("</s>", "<pad>", "<s>")]
    assert tokenizer.decode([special[2], *tokenizer.encode("alpha"), *special]) == "alpha"
    assert set(special).isdisjoint(tokenizer.encode("<s> alpha </s> <pad>"))
    assert set(special).isdisjoint(tokenizer.encode_target("<s> alpha </s> <pad>"))


def test_offsets_are_of_the_text_without_special_pieces_and_outer_blanks(trained: Tokenizer, pieces: list[str]) -> None:
    tokenizer = make(trained, [*pieces, "▁日本", "語"])
    special = pieces.index("<s>")
    ids = [special, tokenizer.unk_id, *tokenizer.encode("alpha"), special, len(pieces), len(pieces) + 1, special]
    text, offsets = tokenizer.decode(ids), tokenizer.decode_offsets(ids)
    assert len(offsets) == len(ids)
    assert "".join(text[start:end] for start, end in offsets) == text == "⁇  alpha 日本語"
    assert all(start == end for number, (start, end) in zip(ids, offsets, strict=True) if number == special)
    assert tokenizer.decode_offsets([]) == []
    assert tokenizer.encode_offsets(" alpha") == trained.encode_offsets(" alpha")


def test_what_does_not_fit_together_is_refused(trained: Tokenizer, pieces: list[str]) -> None:
    known = [piece for piece in pieces if piece != "<unk>"]
    with pytest.raises(TokenizerError, match="has no piece <unknown>"):
        make(trained, pieces, "<unknown>")
    with pytest.raises(TokenizerError, match=r"^unknown_piece: .*, got </s>$"):
        make(trained, pieces, "</s>")
    for model, target, problem in (
        (trained.model, known, "target vocabulary has no piece <unk>"),
        (b"none", pieces, "target: not a SentencePiece model"),
        (b"", pieces, "target: not a SentencePiece model: the file is empty"),
    ):
        with pytest.raises(TokenizerError, match=problem):
            PieceTokenizer(trained.model, model, pieces, target, unknown_piece="<unk>", special_pieces=())
