"""Files that derive from tables of the code are up to date, and numbers of protobuf fields keep their meaning."""

import runpy
from pathlib import Path

import pytest

from dragoman.protos.translation_pb2 import SearchOptions as Message
from dragoman.serve.engine.native.records import SUBMISSION_RECORD
from dragoman.serve.search.option_table import RETIRED_NUMBERS, ROWS, OptionTable
from dragoman.serve.search.options import SearchOptions
from tests.support.paths import ROOT

SCRIPTS = ("options", "limits")
FILES = {path: text for name in SCRIPTS for path, text in runpy.run_path(str(ROOT / f".ci/{name}.py"))["files"]()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_what_the_code_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path], "run `make tables` and commit"


def test_the_message_has_the_numbers_of_the_table_and_a_retired_number_does_not_come_back() -> None:
    numbers = {name: option.number for name, option in ROWS.items()}
    assert numbers == {field.name: field.number for field in Message.DESCRIPTOR.fields}
    assert len(numbers) == len(set(numbers.values()) - set(RETIRED_NUMBERS))


def test_the_search_takes_the_numbers_of_the_table_with_their_defaults() -> None:
    for name in SUBMISSION_RECORD["SearchNumbers"].types:
        assert name in SearchOptions._fields
        assert OptionTable.model_fields[name].default in (None, SearchOptions._field_defaults.get(name))
