"""`dragoman bench scheduling` measures every part of a trained and a random model."""

import pytest

from benchmarks.harness.report import Report
from benchmarks.scheduling import SchedulingPlan
from dragoman.model.run import RunFolder
from tests.support.toy import toy_test_sentences, write_pairs

SHAPE = {"d_model": 64, "d_ff": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "max_target_tokens": 24}
QUICK = {"rounds": 2, "slots": 8, "budgets": (8, 64), "bursts": 2, "neighbors": (2,), "short_requests": 4}
SENTENCES = 30
Columns = dict[str, list[float]]
# The rounds of both models, by row and column, for each part.
Parts = dict[str, list[dict[str, Columns]]]


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Report:
    data = write_pairs(tmp_path_factory.mktemp("data"), "few", toy_test_sentences()[:SENTENCES])
    plan = {"run": toy_run.path, "data": data, "random": SHAPE, "vocabulary_size": 100, **QUICK}
    return SchedulingPlan.model_validate(plan).measure()


@pytest.fixture(name="parts")
def _parts(report: Report) -> Parts:
    found: Parts = {}
    for table in report.tables:
        part, model = table.text.split(", ", 1)
        assert model.startswith(("**run**: ", "**random**: "))
        rows = {
            row: {column: rounds for column in table.columns if (rounds := table.figures(row, column))}
            for row in table.rows
        }
        found.setdefault(part, []).append(rows)
    assert [len(models) for models in found.values()] == [2, 2, 2]
    return found


def test_the_tokens_of_a_burst_come_in_order_for_every_budget(parts: Parts) -> None:
    for rows in parts["prefill"]:
        first, last = (rows[f"burst has its {name} tokens after, ms"] for name in ("first", "last"))
        assert list(first) == ["8", "64"]
        assert all(0 < low < high for budget in first for low, high in zip(first[budget], last[budget], strict=True))


def test_short_requests_are_measured_alone_and_with_long_ones(parts: Parts) -> None:
    for rows in parts["head-of-line"]:
        medians, p99s = rows["short request, median, ms"], rows["short request, p99, ms"]
        assert list(medians) == ["0", "2"]
        for neighbors in medians:
            assert all(low <= high for low, high in zip(medians[neighbors], p99s[neighbors], strict=True))
        assert "0" not in rows.get("long request, ms", {})


def test_rows_are_taken_while_sequences_wait(parts: Parts) -> None:
    for rows in parts["work-conservation"]:
        taken = rows["rows taken while something waits, %"]
        assert list(taken) == ["greedy", "beam 4"]
        assert all(0 < share <= 100 for rounds in taken.values() for share in rounds)
