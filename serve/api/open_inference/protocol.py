"""The Open Inference Protocol, version 2: what its two forms, REST and gRPC, have in common.

Requests with tensors become requests for translations, which go to the dispatcher like all others; translations become
tensors. What a client asks about server and models is answered here as well. Built by `serve.service`.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.metadata import version

from serve.api.open_inference.open_inference_parameters import PARAMETERS, Parameters, in_our_words
from serve.api.open_inference.open_inference_tensors import TEXT_INPUT, TEXT_OUTPUT, Tensor, make_tensors
from serve.errors import InvalidRequestError, ModelNotFoundError
from serve.observability.logs import RequestRecord
from serve.registry.dispatcher import Dispatcher
from serve.registry.lifecycle import Lifecycle
from serve.registry.registry import Models
from serve.registry.served_model import ServedModel
from serve.translation.asked import AskedDirection, AskedTranslation
from serve.translation.response import Timings, TranslationResponse

SERVER = "dragoman"
PLATFORM = "onnx_onnxv1"
EXTENSIONS = ("binary_tensor_data", "generate", "model_configuration", "model_repository", "parameters")
# As much of the hash of a bundle's manifest as tells bundles apart.
VERSION_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What a client asks for.

    Attributes:
        model: name of the model.
        version: of the model; empty: the one that is served.
        request_id: what the answer is to be called.
        texts: what to translate.
        shape: of the tensor that they came in.
        parameters: how.
        outputs: names of the tensors that the answer is to have.
        deadline_seconds: when the client stops waiting, on the clock of `time.monotonic`; None: it did not say.
    """

    model: str
    version: str
    request_id: str
    texts: list[str]
    shape: tuple[int, ...]
    parameters: Parameters
    outputs: tuple[str, ...]
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """One answer.

    Attributes:
        model, version, request_id: whose it is.
        tensors: what there is.
        timings: where the time went; None: there is more to come.
    """

    model: str
    version: str
    request_id: str
    tensors: list[Tensor]
    timings: Timings | None

    @property
    def seconds(self) -> dict[str, float]:
        """The timings by name."""
        return {} if self.timings is None else self.timings.by_name


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model as it is listed.

    Attributes:
        state: READY, LOADING or UNAVAILABLE.
        reason: why it is not ready.
    """

    name: str
    version: str
    state: str
    reason: str

    @property
    def ready(self) -> bool:
        """Whether it would translate now."""
        return self.state == "READY"


class OpenInference:
    """Answers requests of this protocol, in whichever form they come."""

    def __init__(self, dispatcher: Dispatcher, models: Models, lifecycle: Lifecycle) -> None:
        """Keeps what it needs.

        Args:
            dispatcher: translates.
            models: what there is.
            lifecycle: knows whether the server lives and is ready.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._lifecycle = lifecycle
        self.server_version = version("dragoman")

    @property
    def live(self) -> bool:
        """Whether the process answers and no model hangs."""
        return self._lifecycle.live

    @property
    def ready(self) -> bool:
        """Whether every model would translate now."""
        return self._lifecycle.unready_reason() is None

    def status(self, name: str, version: str = "") -> ModelStatus:
        """Tells about one model.

        Raises:
            ModelNotFoundError: if there is no such model or version.
        """
        return self._status(self._find(name, version))

    def statuses(self) -> list[ModelStatus]:
        """Tells about every model, in the order in which requests choose."""
        return list(map(self._status, self._models))

    async def infer(self, inference: Inference, record: RequestRecord) -> Inferred:
        """Translates every text, or none.

        Args:
            inference: what is asked for.
            record: gets the model and the answer.

        Raises:
            ServiceError: why there is no translation.
        """
        if inference.parameters.stream:
            raise InvalidRequestError(f"{PARAMETERS}.stream", "true, expected false where there is a single answer")
        served = self._find(inference.model, inference.version)
        try:
            response = await self._dispatcher.translate(_asked(inference), record)
        except InvalidRequestError as error:
            raise in_our_words(error) from error
        return _inferred(inference, served, response)

    async def stream(self, inference: Inference, record: RequestRecord) -> AsyncGenerator[Inferred]:
        """Yields what the translation of one text grows by, and at last everything but its text.

        If the client asks for no stream, this is one answer with all of it.

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        if len(inference.texts) != 1:
            raise InvalidRequestError(TEXT_INPUT, f"{len(inference.texts)} texts, expected 1 in a stream of its growth")
        if inference.parameters.stream is False:
            yield await self.infer(inference, record)
            return
        served = self._find(inference.model, inference.version)
        try:
            async with aclosing(self._dispatcher.stream(_asked(inference), record)) as events:
                async for event in events:
                    if isinstance(event, TranslationResponse):
                        yield _inferred(inference, served, event, text="")
                    elif event.text:
                        yield _grown(inference, served, event.text)
        except InvalidRequestError as error:
            raise in_our_words(error) from error

    def _find(self, name: str, version: str) -> ServedModel:
        served = self._models.get(name)
        known = _version(served)
        if version not in ("", known):
            raise ModelNotFoundError(f"version: {version[:64]!r} of {name}, expected {known!r} or none")
        return served

    def _status(self, served: ServedModel) -> ModelStatus:
        readiness = served.pipeline.readiness
        fault = self._lifecycle.unready_reason() if self._lifecycle.leaving else readiness.fault()
        state = "READY" if fault is None else "LOADING" if readiness.healthy and not readiness.proven else "UNAVAILABLE"
        return ModelStatus(served.name, _version(served), state, "" if fault is None else str(fault))


def _version(served: ServedModel) -> str:
    return served.manifest_sha256[:VERSION_CHARACTERS]


def _asked(inference: Inference) -> AskedTranslation:
    parameters = inference.parameters
    deadline_seconds = inference.deadline_seconds
    if parameters.timeout:
        given_seconds = time.monotonic() + parameters.timeout / 1_000_000
        deadline_seconds = given_seconds if deadline_seconds is None else min(deadline_seconds, given_seconds)
    return AskedTranslation(
        texts=inference.texts,
        direction=AskedDirection(
            model=inference.model,
            source_language=parameters.source_language,
            target_language=parameters.target_language,
            allow_pivot=parameters.allow_pivot,
        ),
        options=parameters.options,
        split_sentences=parameters.split_sentences,
        deadline_seconds=deadline_seconds,
        priority=parameters.engine_priority,
    )


def _inferred(
    inference: Inference, served: ServedModel, response: TranslationResponse, *, text: str | None = None
) -> Inferred:
    """Returns the answer, with another text than that of the translation if one is given."""
    translations = response.translations
    if text is not None:
        translations = tuple(replace(translation, text=text) for translation in translations)
    return Inferred(
        model=served.name,
        version=_version(served),
        request_id=inference.request_id,
        tensors=make_tensors(inference.outputs, translations, inference.shape),
        timings=response.timings,
    )


def _grown(inference: Inference, served: ServedModel, text: str) -> Inferred:
    wanted = TEXT_OUTPUT in inference.outputs
    tensors = [Tensor(TEXT_OUTPUT, "BYTES", inference.shape, (text,))] if wanted else []
    return Inferred(
        model=served.name, version=_version(served), request_id=inference.request_id, tensors=tensors, timings=None
    )
