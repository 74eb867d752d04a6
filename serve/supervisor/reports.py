"""Joins the reports of a reload that every process makes."""

from collections.abc import Mapping

from dragoman.serve.registry.reloader import ReloadReport

NO_PROCESS = "no process serves; reload when the service is ready"


def join_reports(reports: Mapping[int, ReloadReport]) -> ReloadReport:
    """Returns the report of the first process with the failures of all; `reports`: by the number of the process."""
    if not reports:
        return ReloadReport(problem=NO_PROCESS)
    first = next(iter(reports.values()))
    failed: dict[str, str] = {}
    for number, report in reports.items():
        for name, problem in report.failed.items():
            failed.setdefault(name, problem if report is first else f"process {number}: {problem}")
    problems = (report.problem for report in reports.values() if report.problem is not None)
    return ReloadReport(
        loaded=[item for item in first.loaded if item not in failed],
        replaced=[item for item in first.replaced if item not in failed],
        removed=[item for item in first.removed if item not in failed],
        unchanged=[item for item in first.unchanged if item not in failed],
        failed=failed,
        problem=next(problems, None),
    )
