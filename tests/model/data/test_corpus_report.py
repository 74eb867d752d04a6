"""`dragoman data`: correct figures, and errors in a single line."""

from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.config import CleaningConfig
from dragoman.model.data.cleaning import clean
from dragoman.model.data.corpus import Corpus
from dragoman.model.data.report import DataCommand, describe_corpora
from dragoman.model.data.segmentation import encode_corpus
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.commands import Capture, refusal


def write_table(folder: Path) -> str:
    """Writes three pairs, one of them twice and one with an absurd length ratio; returns their specification."""
    path = folder / "x.en-de.tsv"
    path.write_text("one river\teins\none river\teins\n\tzwei\nhouse\tzweihundert\ntwo\tz\n", encoding="utf-8")
    return f"tsv:{path}"


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_pairs_and_lengths_are_printed(tmp_path: Path, capsys: Capture) -> None:
    command_line.run("data", [write_table(tmp_path), "--cleaning.max-length-ratio", "2.5"])
    assert capsys.readouterr().out.splitlines() == [
        "direction  read  blank  copy  repetition  long  ratio  duplicate  held out  pairs",
        "en-de         5      1     0           0     0      1          1         0      2",
        "",
        "direction  side  characters  mean  95 %  longest",
        "en-de      en            14   7.0     9        9",
        "en-de      de            15   7.5    11       11",
    ]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    corpus = Corpus("en", "de", ["a" * 2000] * 1000, ["b"] * 1000)
    table = describe_corpora([clean(corpus, CleaningConfig(max_length_ratio=None, remove_duplicates=False))])
    first, second = table.split("\n\n")
    assert len({len(line) for line in first.splitlines()}) == 1
    assert len({len(line) for line in second.splitlines()}) == 1
    assert "2,000,000" in second


def test_a_tokenizer_adds_tokens_and_coverage(tokenizer: Tokenizer) -> None:
    corpus = Corpus("en", "de", ["one river", "two"], ["語", "two"])
    encoded = [encode_corpus(corpus, tokenizer)]
    lines = describe_corpora([clean(corpus, CleaningConfig())], encoded, tokenizer.vocabulary_size).splitlines()
    english, german = cells("\n".join(lines))[4:6]
    lengths = [len(tokenizer.encode(line)) for line in corpus.sources]
    assert english[-5:] == [str(sum(lengths)), f"{sum(lengths) / 2:.1f}", str(max(lengths)), str(max(lengths)), "0.00%"]
    ids = [token_id for line in corpus.targets for token_id in tokenizer.encode(line)]
    assert german[-1] == f"{1 / len(ids):.2%}"
    used = len({*ids, *tokenizer.encode("one river"), *tokenizer.encode("two")})
    assert lines[-1].startswith(f"{used} of the {tokenizer.vocabulary_size} tokens of the vocabulary occur (")


def test_a_tokenizer_is_read(tmp_path: Path, tokenizer: Tokenizer, capsys: Capture) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model)
    command_line.run("data", [write_table(tmp_path), "--tokenizer", str(path)])
    assert "tokens of the vocabulary occur" in capsys.readouterr().out


def test_only_training_data_is_cleaned(tmp_path: Path, capsys: Capture) -> None:
    command_line.run("data", [write_table(tmp_path), "--split", "test"])
    assert cells(capsys.readouterr().out)[1] == ["en-de", "5", "1", "0", "0", "0", "0", "0", "0", "4"]


def test_several_corpora_share_the_tables(tmp_path: Path, capsys: Capture) -> None:
    for name in ("y.en", "y.fr"):
        (tmp_path / name).write_text("a\nb\n", encoding="utf-8")
    command_line.run("data", [write_table(tmp_path), f"files:{tmp_path}/y.en,{tmp_path}/y.fr"])
    assert [row[0] for row in cells(capsys.readouterr().out)[1:3]] == ["en-de", "en-fr"]


def test_the_environment_may_name_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [write_table(tmp_path), "files:a.en,a.de"]
    monkeypatch.setenv("DRAGOMAN_DATA_DATA", ",".join(data))
    assert DataCommand.model_validate({}).data == tuple(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "dragoman data: 'nonsense' is not a data specification: "),
        (["files:no.en,no.de"], "dragoman data: no.en: "),
    ],
)
def test_unreadable_data_is_reported(arguments: list[str], message: str) -> None:
    assert refusal("data", *arguments).startswith(message)


@pytest.mark.parametrize("content", [None, b"no tokenizer"])
def test_an_invalid_tokenizer_is_reported(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tokenizer.model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=r"^dragoman data: tokenizer: .*tokenizer\.model: "):
        command_line.run("data", [write_table(tmp_path), "--tokenizer", str(path)])
