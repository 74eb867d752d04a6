"""Every direction gets validation pairs, and none of them is in the training data."""

from pathlib import Path

import pytest

from dragoman.model.config import CleaningConfig
from dragoman.model.data.cleaning import Reason, read_training_data
from dragoman.model.errors import CorpusError


def write_table(path: Path, pairs: int, prefix: str = "word") -> str:
    """Writes a table of distinct pairs; returns its specification."""
    path.write_text("".join(f"{prefix} {i}\tWort {i}\n" for i in range(pairs)), encoding="utf-8")
    return f"tsv:{path}"


def test_data_without_parts_are_validated_on_their_last_pairs(tmp_path: Path) -> None:
    data = read_training_data([write_table(tmp_path / "x.en-de.tsv", 50), write_table(tmp_path / "x.en-fr.tsv", 20)])
    assert [len(part.corpus) for part in data.training] == [45, 18]
    assert [part.dropped[Reason.HELD_OUT] for part in data.training] == [5, 2]
    assert [corpus.languages for corpus in data.validation] == [("en", "de"), ("en", "fr")]
    assert data.validation[1].sources == ["word 18", "word 19"]


def test_no_held_out_pair_is_trained_on(tmp_path: Path) -> None:
    """Even if the data contain it twice, in two tables."""
    table, other = write_table(tmp_path / "x.en-de.tsv", 50), write_table(tmp_path / "y.en-de.tsv", 50)
    data = read_training_data([table, other])
    (training,), (validation,) = data.training, data.validation
    assert training.dropped[Reason.DUPLICATE] == 50
    assert len(validation) == 5
    assert not set(training.corpus.sources) & set(validation.sources)


def test_validation_data_may_be_given_and_stay_as_they_are(tmp_path: Path) -> None:
    table = write_table(tmp_path / "x.en-de.tsv", 50)
    path = tmp_path / "valid.en-de.tsv"
    path.write_text("a\tA\na\tA\nb\tabsurdly long\n", encoding="utf-8")
    data = read_training_data([table], [f"tsv:{path}"], cleaning=CleaningConfig(max_length_ratio=2))
    assert len(data.training[0].corpus) == 50
    assert data.validation[0].sources == ["a", "a", "b"]


def test_given_validation_data_need_not_have_every_direction(tmp_path: Path) -> None:
    tables = [write_table(tmp_path / "x.en-de.tsv", 50), write_table(tmp_path / "x.en-fr.tsv", 20)]
    data = read_training_data(tables, [write_table(tmp_path / "valid.en-fr.tsv", 3)])
    assert [len(part.corpus) for part in data.training] == [50, 20]
    assert [corpus.languages for corpus in data.validation] == [("en", "fr")]


def test_validation_data_of_other_directions_are_refused(tmp_path: Path) -> None:
    table, other = write_table(tmp_path / "x.en-de.tsv", 50), write_table(tmp_path / "x.de-en.tsv", 5)
    with pytest.raises(CorpusError, match=r"x\.de-en\.tsv: .*\(en-de\), got de-en$"):
        read_training_data([table], [other])


def test_cleaning_follows_its_configuration(tmp_path: Path) -> None:
    table = write_table(tmp_path / "x.en-de.tsv", 50)
    data = read_training_data([table, table], cleaning=CleaningConfig(remove_duplicates=False))
    assert len(data.training[0].corpus) == 90
