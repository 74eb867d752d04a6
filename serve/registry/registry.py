"""The models that are served, by name.

Requests choose among them in one order: those with the fewest directions first, then by name, so that a model made for
one direction comes before one that knows many. Filled by `serve.app` and `serve.registry.reloader`; knows no protocol.
"""

import asyncio
from collections.abc import Iterable, Iterator

from serve.errors import NotReadyError
from serve.registry.model_description import ModelDescription
from serve.registry.route import Offers, check_model
from serve.registry.served_model import ServedModel


class Models:
    """What is served now, and what is leaving. Belongs to the event loop's thread."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        """Holds the models, whether they are started or not."""
        self._served: dict[str, ServedModel] = {}
        self._offers: Offers = {}
        self._leaving: dict[ServedModel, asyncio.Task[None]] = {}
        for model in models:
            self.put(model)

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterates in the order in which requests choose."""
        return iter(tuple(self._served.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all, in the order in which requests choose."""
        return tuple(self._served)

    @property
    def offers(self) -> Offers:
        """What there is to choose from."""
        return self._offers

    @property
    def hanging(self) -> bool:
        """True while any model hangs, also one that is leaving."""
        return any(served.pipeline.readiness.hanging for served in (*self, *self._leaving))

    def fault(self) -> NotReadyError | None:
        """Returns what keeps one of the models from translating; None: nothing does."""
        for served in self:
            if fault := served.pipeline.readiness.fault():
                return NotReadyError(f"{served.name}: {fault}")
        return None

    def refresh(self) -> None:
        """Brings the gauges of every model up to date."""
        for served in self:
            served.pipeline.refresh()

    def find(self, name: str) -> ServedModel | None:
        """Returns the model of this name; None: there is none."""
        return self._served.get(name)

    def get(self, name: str) -> ServedModel:
        """Returns the model of this name.

        Raises:
            ModelNotFoundError: if there is none.
        """
        check_model(name, self._served)
        return self._served[name]

    def describe(self) -> tuple[ModelDescription, ...]:
        """Returns what clients are told of all, in the order in which requests choose."""
        return tuple(served.describe() for served in self)

    def put(self, model: ServedModel) -> None:
        """Serves a model, and none of its name that was served before: `retire` that one."""
        served = [*(each for each in self if each.name != model.name), model]
        self._hold(served)
        model.pipeline.publish()

    def remove(self, name: str) -> None:
        """Serves the model no longer: `retire` it."""
        self._hold(each for each in self if each.name != name)

    def retire(self, model: ServedModel) -> asyncio.Task[None]:
        """Stops a model that gets no requests any more, as soon as those that it has are answered."""

        async def leave() -> None:
            await model.wait_unused()
            await model.stop()

        leaving = asyncio.create_task(leave())
        self._leaving[model] = leaving
        leaving.add_done_callback(lambda _: self._leaving.pop(model))
        return leaving

    async def wait_unused(self) -> None:
        """Waits until no request uses any model; the caller must let no new one in."""
        await asyncio.gather(*(model.wait_unused() for model in (*self, *self._leaving)))

    async def stop(self) -> None:
        """Stops every model at once; what still runs ends with DrainingError."""
        models = (*self, *self._leaving)
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*(model.stop() for model in models))

    def _hold(self, models: Iterable[ServedModel]) -> None:
        ordered = sorted(models, key=lambda each: (len(each.pipeline.manifest.directions), each.name))
        self._served = {each.name: each for each in ordered}
        self._offers = {each.name: each.pipeline.manifest.directions for each in ordered}
