"""Which models leave the memory, for any models and limits."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.registry.eviction import idle_since, make_room


@dataclass(frozen=True)
class Usage:
    """The requests of a model."""

    count: int
    last_seconds: int


@dataclass(frozen=True)
class Resident:
    """What the policy reads of a model."""

    memory_bytes: int
    uses: Usage
    pinned: bool


def order(model: Any) -> tuple[bool, int]:
    return model.uses.count > 0, model.uses.last_seconds


usages = st.builds(Usage, st.integers(0, 2), st.integers(0, 5))
residents: Any = st.lists(st.builds(Resident, st.integers(0, 9), usages, st.booleans()))
sizes = st.integers(0, 40)


def total(models: list[Any]) -> int:
    return sum(model.memory_bytes for model in models)


@given(models=residents, needed=sizes, limit=sizes)
def test_what_stays_fits_and_no_smaller_beginning_of_the_order_would_do(
    models: list[Any], needed: int, limit: int
) -> None:
    leaving, fit = make_room(models, needed, limit)
    if not fit:
        assert total([model for model in models if model.pinned]) + needed > limit
        return
    assert total(models) - total(leaving) + needed <= limit
    assert not leaving or total(models) - total(leaving[:-1]) + needed > limit


@given(models=residents, needed=sizes, limit=sizes)
def test_the_least_recently_used_leave_first_and_pinned_ones_never(models: list[Any], needed: int, limit: int) -> None:
    leaving, _ = make_room(models, needed, limit)
    assert leaving == sorted(leaving, key=order)
    staying = list(models)
    for model in leaving:
        assert not model.pinned
        staying.remove(model)
    movable = [order(model) for model in staying if not model.pinned]
    assert not leaving or not movable or order(leaving[-1]) <= min(movable)


@given(models=residents, needed=sizes, limit=sizes)
def test_requests_hold_a_model_unless_all_idle_ones_are_too_few(models: list[Any], needed: int, limit: int) -> None:
    leaving, fit = make_room(models, needed, limit)
    if fit and any(model.uses.count > 0 for model in leaving):
        held = [replace(model, pinned=model.pinned or model.uses.count > 0) for model in models]
        assert not make_room(held, needed, limit)[1]


@given(models=residents, seconds=st.integers(0, 5))
def test_an_idle_model_leaves_at_its_time_unless_it_is_pinned(models: list[Any], seconds: int) -> None:
    leaving = idle_since(models, seconds)
    for model in models:
        assert (model in leaving) is (not model.uses.count and not model.pinned and model.uses.last_seconds <= seconds)
