"""Words and their units are those of Argos Translate: the rules of sacremoses, and merges as in subword-nmt."""

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from dragoman.model.tokenizer.bpe import Merges
from dragoman.model.tokenizer.tokenizer import TokenizerError
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer

TEXT = """The quick brown fox jumps over the lazy dog. It doesn't bark; the dogs' owner says "no" to barking!
A price of 1,234.56 dollars & more <b>bold</b> [sic] - e.g. 5 o'clock, U.S. policy at 3.5 %, e-mail: a.b@c.de.
Lower lowest newer newest wider widest, banana ananas anna aaaa aaaaaaa aaaaaaaa.
"""
OTHER_TEXTS = ("", "  two  spaces ", "\u201cquoted\u201d \u2013 x", "a|b", "漢字 Ωμέγα")


def ended(word: str, version: str) -> list[str]:
    return [*word[:-1], word[-1] + "</w>"] if version == "0.2" else [*word, "</w>"]


def merged(symbols: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Merges every occurrence of a pair, from left to right."""
    result: list[str] = []
    left = list(symbols)
    while left:
        if tuple(left[:2]) == pair:
            result.append("".join(left[:2]))
            del left[:2]
        else:
            result.append(left.pop(0))
    return result


def learned(version: str, count: int = 60) -> str:
    """Returns a file of the most frequent pairs, one after the other (Sennrich et al. 2016, algorithm 1)."""
    words = [ended(word, version) for word in TEXT.split()]
    lines = ["#version: 0.2"] if version == "0.2" else []
    for _ in range(count):
        pair = max(sorted(counts := Counter(pair for word in words for pair in pairwise(word))), key=counts.__getitem__)
        words = [merged(word, pair) for word in words]
        lines.append(" ".join(pair))
    return "\n".join(lines) + "\n"


CODES = {
    "0.2": learned("0.2"),
    "0.1": learned("0.1"),
    # Later pairs make earlier ones possible, as in no learned file.
    "hostile": "#version: 0.2\nab c\na b\naa a\na a\nb a</w>\naba a</w>\n",
}


def slow_units(codes: str, word: str) -> list[str]:
    """Returns the units of a word: the pair that is first in the file is merged everywhere, and so on."""
    lines = codes.splitlines()
    version = "0.2" if lines[0].startswith("#") else "0.1"
    ranks = {tuple(line.split(" ")): -number for number, line in enumerate(lines) if line[0] != "#"}
    symbols = [word] if len(word) == 1 else ended(word, version)
    while known := [pair for pair in pairwise(symbols) if pair in ranks]:
        symbols = merged(symbols, max(known, key=ranks.__getitem__))
    *parts, last = [symbol for symbol in (symbol.removesuffix("</w>") for symbol in symbols) if symbol]
    return [*(f"{part}@@" for part in parts), last]


def pieces_of(codes: str) -> tuple[str, ...]:
    """Returns a vocabulary of every unit of the text."""
    units = {unit for line in TEXT.splitlines() for unit in theirs(codes, line)}
    return ("<blank>", "<unk>", "<s>", "</s>", *sorted(units))


def theirs(codes: str, text: str) -> list[str]:
    """Returns the units of a text as Argos Translate makes them."""
    words = " ".join(MosesTokenizer("en").tokenize(MosesPunctNormalizer("en").normalize(text)))
    return [unit for word in words.strip("\r\n ").split(" ") if word for unit in slow_units(codes, word)]


def tokenizer_of(codes: str, pieces: Sequence[str], languages: tuple[str, str] = ("en", "de")) -> WordTokenizer:
    return WordTokenizer(
        codes.encode(), languages, pieces, pieces, unknown_piece="<unk>", special_pieces=("<blank>", "<s>", "</s>")
    )


@pytest.mark.parametrize("version", CODES)
@given(word=st.text("abnwet", min_size=1, max_size=30))
def test_pairs_are_merged_in_the_order_of_the_file(version: str, word: str) -> None:
    *parts, last = Merges(CODES[version].encode()).split(word)
    assert [*(f"{part}@@" for part in parts), last] == slow_units(CODES[version], word)


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_a_text_has_the_pieces_of_the_original_libraries(version: str) -> None:
    pieces = pieces_of(CODES[version])
    tokenizer = tokenizer_of(CODES[version], pieces)
    for text in (*TEXT.splitlines(), *OTHER_TEXTS):
        expected = theirs(CODES[version], text)
        assert tokenizer.units(text) == expected
        assert tokenizer.encode(text) == [pieces.index(unit) if unit in pieces else 1 for unit in expected]


def test_a_translation_has_the_text_of_the_original_libraries() -> None:
    pieces = pieces_of(CODES["0.2"])
    tokenizer = tokenizer_of(CODES["0.2"], pieces)
    for text in TEXT.splitlines():
        units = tokenizer.units(text)
        ids = [pieces.index(unit) for unit in units]
        expected = MosesDetokenizer("de").detokenize(" ".join(units).replace("@@ ", "").split(" "))
        assert tokenizer.decode(ids) == tokenizer.decode([2, *ids, 3]) == expected
    assert tokenizer.decode([]) == tokenizer.decode([2, 3]) == ""
    assert tokenizer.decode([1]) == "⁇"


def test_units_are_found_in_the_text() -> None:
    tokenizer = tokenizer_of(CODES["0.2"], pieces_of(CODES["0.2"]))
    text = "It doesn't bark & the lowest <b> newer"
    ids = tokenizer.encode(text)
    for offsets, seen in (
        (tokenizer.encode_offsets(text), text),
        (tokenizer.decode_offsets(ids), tokenizer.decode(ids)),
    ):
        assert len(offsets) == len(ids)
        # Each part of an escaped character has the place of its word.
        places = list(dict.fromkeys(offsets))
        assert all(first[1] <= second[0] for first, second in pairwise(places))
        assert "".join(seen[start:end] for start, end in places) == seen.replace(" ", "")
    assert tokenizer.decode_offsets([2, 3]) == [(0, 0), (0, 0)]


@given(st.text(max_size=40))
def test_any_text_has_as_many_places_as_tokens(text: str) -> None:
    tokenizer = tokenizer_of(CODES["0.2"], pieces_of(CODES["0.2"]))
    ids = tokenizer.encode(text)
    assert len(tokenizer.encode_offsets(text)) == len(ids)
    assert len(tokenizer.decode_offsets(ids)) == len(ids)
    for start, end in tokenizer.encode_offsets(text):
        assert 0 <= start <= end <= len(text)


@pytest.mark.parametrize(
    "content", [b"a\n", b"a b c\n", b"#version: 0.2\na b\n\nc d\n", b"\xff", b"#version: 0.3\na b"]
)
def test_damaged_merges_are_refused(content: bytes) -> None:
    with pytest.raises(TokenizerError, match="merges: "):
        Merges(content)


def test_a_long_word_takes_no_quadratic_time() -> None:
    assert "".join(Merges(CODES["0.2"].encode()).split("abnwet" * 20_000)) == "abnwet" * 20_000


def test_the_unknown_piece_must_be_in_both_vocabularies() -> None:
    with pytest.raises(TokenizerError, match="unknown_piece: expected a piece of both vocabularies"):
        tokenizer_of(CODES["0.2"], ("a", "b"))


def test_without_the_library_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses.normalize", None)
    with pytest.raises(TokenizerError, match="requires the library sacremoses: pip install sacremoses"):
        tokenizer_of(CODES["0.2"], pieces_of(CODES["0.2"]))
