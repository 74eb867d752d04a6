"""`dragoman bench translate` measures whole processes."""

import pytest

from benchmarks.translate import TranslatePlan
from dragoman.model.errors import CorpusError
from dragoman.serve.bundle.bundle import Bundle


def test_both_programs_translate_the_lines_in_every_round(int8_bundle: Bundle, toy_data: str) -> None:
    plan = TranslatePlan(bundle=int8_bundle.folder, data=toy_data, lines=5, rounds=2)
    (table,) = plan.measure().tables
    for program in ("dragoman translate", "script of CTranslate2"):
        assert len(table.figures("seconds", program)) == 2
        assert min(table.figures("CPU seconds", program)) > 0
    with pytest.raises(CorpusError, match=r"^lines: 1000000: expected at most \d+"):
        plan.model_copy(update={"lines": 1_000_000}).measure()
