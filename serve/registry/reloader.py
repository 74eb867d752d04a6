"""Hot reload: loads new models, replaces changed ones and retires removed ones while the service runs.

A model takes requests only after its golden sentences match; until then the previous version continues. The version
that accepted a request answers it.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.errors import DrainingError
from dragoman.serve.host.system import run_in_daemon_thread, trim_memory
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.keeper import ModelKeeper
from dragoman.serve.registry.lifecycle import Lifecycle, Stage
from dragoman.serve.registry.loader import ModelLoader

log = structlog.get_logger("dragoman")


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """The result of a reload, by names of models.

    Attributes:
        removed: empty if any model failed.
        failed: the error per model; its previous version is still served.
        problem: why the whole reload was refused; None: it ran.
    """

    loaded: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def failures(self) -> int:
        """Number of failed models; 1 if the reload was refused."""
        return len(self.failed) + (self.problem is not None)


class Reloader:
    """Updates the served models from the folder. Not thread-safe: used in the event loop's thread."""

    def __init__(self, keeper: ModelKeeper, loader: ModelLoader, lifecycle: Lifecycle, metrics: ServiceMetrics) -> None:
        self._models = keeper.models
        self._loader = loader
        self._keeper = keeper
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[ReloadReport]] = set()

    def start(self) -> asyncio.Task[ReloadReport]:
        """Starts a reload, which waits for earlier ones; the task returns its report."""
        task = asyncio.create_task(self._reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def reload(self) -> ReloadReport:
        """Reloads and returns the report; the reload continues if the caller is canceled.

        Raises DrainingError if the service stops meanwhile.
        """
        task = self.start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise DrainingError("shutting down") from None
            raise

    async def stop(self) -> None:
        """Cancels running reloads; replaced models stay replaced."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reload(self) -> ReloadReport:
        async with self._lock:
            report = await self._follow_folder()
            # Frees memory of models retired by earlier reloads; those of this one are still stopping.
            await run_in_daemon_thread(trim_memory)
            self._metrics.observe_reload(report.failures)
            if report.failures:
                log.error("reload_failed", **_facts(report))
            else:
                log.info("reloaded", **_facts(report))
            return report

    async def _follow_folder(self) -> ReloadReport:
        if self._lifecycle.stage is not Stage.READY:
            return ReloadReport(problem="the service is starting or shutting down; reload when it is ready")
        try:
            found = await self._loader.find()
        except BundleError as error:
            return ReloadReport(problem=str(error))
        report = ReloadReport()
        for result in found:
            served = self._models.find(result.name)
            if served is not None and served.manifest_sha256 == result.manifest_sha256:
                report.unchanged.append(result.name)
                served.kept = False
                continue
            try:
                await self._keeper.replace(result)
            except BundleError as error:
                report.failed[result.name] = str(error)
                if served is not None:
                    served.kept = True
                continue
            (report.loaded if served is None else report.replaced).append(result.name)
        # A partly written folder may lack bundles that are still to come.
        if not report.failed:
            for name in set(self._models.names) - {result.name for result in found}:
                self._remove(name)
                report.removed.append(name)
        return report

    def _remove(self, name: str) -> None:
        removed = self._models.get(name)
        self._models.remove(name)

        def forget(_: object) -> None:
            # Unless a model with this name was added again.
            if self._models.find(name) is None:
                self._metrics.forget(name)

        self._models.retire(removed).add_done_callback(forget)


def _facts(report: ReloadReport) -> dict[str, object]:
    names = {"loaded": report.loaded, "replaced": report.replaced, "removed": report.removed, "failed": report.failed}
    facts: dict[str, object] = {name: label for name, label in names.items() if label}
    return facts if report.problem is None else {**facts, "problem": report.problem}
