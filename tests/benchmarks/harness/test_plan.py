"""A plan has defaults, which a YAML file overrides, and settings override both."""

from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, Field

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.plan import BenchmarkPlan
from tests.support.cases import cases

CASES = cases(__file__)


class Shape(BaseModel):
    """A nested model."""

    width: int = 512
    layers: int = 6


class SpeedPlan(BenchmarkPlan):
    """A plan with a required and a nested field."""

    bundle: Path = Field(description="what to measure")
    shape: Shape = Field(Shape(layers=2), description="of the model")
    rows: tuple[int, ...] = Field((1, 8), description="of a step")


def test_settings_override_the_file_which_overrides_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("bundle: a\nrows: [2]\nshape: {width: 64}\n", encoding="utf-8")
    plan = SpeedPlan.read(path, ["bundle=b", "shape.width=32"])
    assert plan == SpeedPlan(bundle=Path("b"), shape=Shape(width=32, layers=2), rows=(2,), rounds=5)


def test_a_description_is_a_plan_of_the_defaults(tmp_path: Path) -> None:
    text = SpeedPlan.describe()
    assert "# what to measure (required)" in text.splitlines()
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    assert SpeedPlan.read(path, ["bundle=b"]) == SpeedPlan(bundle=Path("b"))
    assert list(yaml.safe_load(text)) == list(SpeedPlan.model_fields)


@pytest.mark.parametrize(("setting", "problem"), CASES["an invalid setting is rejected with its field and value"])
def test_an_invalid_setting_is_rejected_with_its_field_and_value(setting: str, problem: str) -> None:
    with pytest.raises(BenchmarkError, match=problem):
        SpeedPlan.read(None, ["bundle=a", setting])


@pytest.mark.parametrize("content", [None, "[1, 2]", "a: [", "\xff"])
def test_an_unreadable_file_is_rejected(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(BenchmarkError, match=f"^plan: {path}: expected "):
        SpeedPlan.read(path, [])
