"""Joins the reports of a reload that every process makes."""

from collections.abc import Mapping

from dragoman.serve.registry.reloader import ReloadReport

NO_PROCESS = "no process serves; reload when the service is ready"


def join_reports(reports: Mapping[int, ReloadReport]) -> ReloadReport:
    """Returns the report of the first process, and the failures of all; a model that failed anywhere has failed.

    Args:
        reports: by the number of the process.
    """
    if not reports:
        return ReloadReport(problem=NO_PROCESS)
    first = next(iter(reports.values()))
    failed: dict[str, str] = {}
    for number, report in reports.items():
        for name, problem in report.failed.items():
            failed.setdefault(name, problem if report is first else f"process {number}: {problem}")
    problems = (report.problem for report in reports.values() if report.problem is not None)
    return ReloadReport(
        loaded=[each for each in first.loaded if each not in failed],
        replaced=[each for each in first.replaced if each not in failed],
        removed=[each for each in first.removed if each not in failed],
        unchanged=[each for each in first.unchanged if each not in failed],
        failed=failed,
        problem=next(problems, None),
    )
