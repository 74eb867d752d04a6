"""The report of a reload by several processes."""

from dragoman.serve.registry.reloader import ReloadReport
from dragoman.serve.supervisor.supervisor import NO_PROCESS, join_reports


def test_a_model_that_failed_anywhere_has_failed() -> None:
    good = ReloadReport(loaded=["a"], replaced=["b"], unchanged=["c"])
    bad = ReloadReport(loaded=["a"], failed={"b": "damaged"}, unchanged=["c"])
    assert join_reports({0: good, 1: good}) == good
    joined = ReloadReport(loaded=["a"], unchanged=["c"], failed={"b": "process 1: damaged"})
    assert join_reports({0: good, 1: bad}) == joined
    assert join_reports({0: bad, 1: good}).failed == {"b": "damaged"}


def test_the_first_problem_is_reported() -> None:
    assert join_reports({0: ReloadReport(), 1: ReloadReport(problem="starting")}).problem == "starting"
    assert join_reports({}).problem == NO_PROCESS
