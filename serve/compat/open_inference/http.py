"""The Open Inference Protocol over REST, with Triton's extensions for binary tensors and text generation.

Errors travel as exceptions to `dragoman.serve.rest.recorder`, which calls `write_error` for paths of this protocol.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.open_inference.http_body import (
    ConfiguredTensor,
    ErrorAnswer,
    GenerateBody,
    GeneratedAnswer,
    IndexBody,
    IndexedModel,
    InferAnswer,
    InferBody,
    Live,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    Ready,
    Server,
    TensorMetadata,
    TensorRequest,
    split_json,
    write_answer,
    write_generated,
)
from dragoman.serve.compat.open_inference.protocol import (
    EXTENSIONS,
    OUTPUTS,
    PLATFORM,
    SERVER,
    SHAPE,
    TEXT_INPUT,
    Inference,
    Inferred,
    ModelStatus,
    OpenInference,
    Parameters,
)
from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER, inlined_schema
from dragoman.serve.edge.body_parser import BodyParser
from dragoman.serve.edge.events import EventForm, EventStream, format_event
from dragoman.serve.edge.problems import error_headers, timings_header
from dragoman.serve.edge.reader import RequestReader, unless_disconnected
from dragoman.serve.edge.route_table import OPEN_INFERENCE, Route, RouteGroup
from dragoman.serve.errors import CLIENT_CLOSED_REQUEST, ERRORS, InvalidRequestError, ModelNotFoundError, ServiceError
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.request_metrics import Method
from dragoman.serve.translation.fields import Fields

_PATH_PARAMETER = re.compile(r"{(\w+)}")
_UNAVAILABLE = int(HTTPStatus.SERVICE_UNAVAILABLE)


_EVENTS_EXAMPLE = """\
data: {"model_name": "demo", "model_version": "0a1b2c3d4e5f", "text_output": "Guten"}

data: {"model_name": "demo", "model_version": "0a1b2c3d4e5f", "text_output": "", "finish_reason": "eos", ...}

"""


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {int(status): {"model": ErrorAnswer} for status in statuses}


def _body(kind: type[Fields], *, required: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": inlined_schema(kind)}}
    return {"requestBody": {"required": required, "content": content}, "parameters": [TIMEOUT_PARAMETER]}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


_STATUSES = {int(error.http_status) for error in ERRORS} - {CLIENT_CLOSED_REQUEST}
_TRANSLATION_ERRORS = _errors(*sorted(_STATUSES), HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
_NOT_FOUND = _errors(InvalidRequestError.http_status, ModelNotFoundError.http_status)
_STREAM = {200: {"content": {"text/event-stream": {"example": _EVENTS_EXAMPLE}}}}

# FastAPI's arguments for the route of each handler.
_ROUTES: dict[str, dict[str, Any]] = {
    "server": {"response_model": Server},
    "live": {"response_model": Live, "responses": {_UNAVAILABLE: {"model": Live}}},
    "ready": {"response_model": Ready, "responses": {_UNAVAILABLE: {"model": Ready}}},
    "model": {"response_model": ModelMetadata, "responses": _NOT_FOUND},
    "model_ready": {"response_model": ModelReady, "responses": {**_NOT_FOUND, _UNAVAILABLE: {"model": ModelReady}}},
    "config": {"response_model": ModelConfig, "responses": _NOT_FOUND},
    "index": {
        "response_model": list[IndexedModel],
        "responses": _TRANSLATION_ERRORS,
        "openapi_extra": _body(IndexBody, required=False),
    },
    "infer": {"response_model": InferAnswer, "responses": _TRANSLATION_ERRORS, "openapi_extra": _body(InferBody)},
    "generate": {
        "response_model": GeneratedAnswer,
        "responses": _TRANSLATION_ERRORS,
        "openapi_extra": _body(GenerateBody),
    },
    "generate_stream": {"responses": {**_TRANSLATION_ERRORS, **_STREAM}, "openapi_extra": _body(GenerateBody)},
}


def describe_route(route: Route) -> dict[str, Any]:
    """Returns FastAPI's arguments for a route, whose path has `{name}` parameters."""
    described = _ROUTES[route.handler.__name__]
    extra = described.get("openapi_extra", {})
    parameters = [*map(_path_parameter, _PATH_PARAMETER.findall(route.path)), *extra.get("parameters", ())]
    return {**described, "openapi_extra": {**extra, "parameters": parameters}}


PREFIX = "/v2"
PROBE_PATHS = frozenset({f"{PREFIX}/health/live", f"{PREFIX}/health/ready"})
# Length of the JSON in bytes; binary tensors follow it.
JSON_LENGTH_HEADER = "inference-header-content-length"

# A length with more digits exceeds any body.
_MAX_DIGITS = 18
# Names that clients of other servers send.
_ALIASES = {"max_tokens": "max_target_tokens"}
_DATA_TYPES = {"BYTES": "TYPE_STRING", "FP64": "TYPE_FP64", "INT64": "TYPE_INT64"}
_METHOD = re.compile(rf"{PREFIX}/models/[^/]+(?:/versions/[^/]+)?/(infer|generate|generate_stream)")
_METHODS: dict[str, Method] = {"infer": "infer", "generate": "generate", "generate_stream": "generate_stream"}


def _write_error(error: ServiceError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.http_status, error_headers(error))


class OpenInferenceHttp:
    """Builds the routes; its methods are the handlers."""

    reads_keys = False

    def __init__(self, open_inference: OpenInference, reader: RequestReader, parser: BodyParser) -> None:
        self._open_inference = open_inference
        self._reader = reader
        self._parser = parser

    def owns(self, path: str) -> bool:
        """Returns whether a path is below that of the protocol."""
        return path == PREFIX or path.startswith(f"{PREFIX}/")

    def find_method(self, path: str) -> Method | None:
        """Returns the label of a path in the metrics; None: it is not a translation."""
        match = _METHOD.fullmatch(path)
        return None if match is None else _METHODS[match[1]]

    def is_open_to_pages(self, path: str) -> bool:  # noqa: ARG002 - no path is
        """Returns false."""
        return False

    def headers(self, request_id: str) -> Mapping[str, str]:  # noqa: ARG002 - the id is in its own header
        """Returns no headers."""
        return {}

    def write_error(self, error: ServiceError, request_id: str) -> JSONResponse:  # noqa: ARG002 - as above
        """Returns the response to a failed request."""
        return _write_error(error)

    def write_http_error(self, error: HTTPException, request_id: str) -> JSONResponse:  # noqa: ARG002 - as above
        """Returns the response to an HTTP error, such as a wrong path, method or content type."""
        return JSONResponse({"error": error.detail}, error.status_code, dict(error.headers or {}))

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        return RouteGroup(tuple(self._routes()), describe_route, OPEN_INFERENCE)

    def _routes(self) -> Iterator[Route]:
        yield Route("GET", PREFIX, self.server)
        yield Route("POST", f"{PREFIX}/repository/index", self.index)
        yield Route("GET", f"{PREFIX}/health/live", self.live)
        yield Route("GET", f"{PREFIX}/health/ready", self.ready)
        model = f"{PREFIX}/models/{{model}}"
        for path in (model, f"{model}/versions/{{version}}"):
            yield Route("GET", path, self.model)
            yield Route("GET", f"{path}/ready", self.model_ready)
            yield Route("GET", f"{path}/config", self.config)
            for handler in (self.infer, self.generate, self.generate_stream):
                yield Route("POST", f"{path}/{handler.__name__}", handler)

    async def server(self) -> Response:
        """Returns name, version and extensions of the server."""
        server = Server(name=SERVER, version=self._open_inference.server_version, extensions=list(EXTENSIONS))
        return JSONResponse(server.model_dump())

    async def live(self) -> Response:
        """Responds with 200 while the event loop runs, also in warm-up and shutdown; with 503 if a model hangs."""
        return _status_response(Live(live=self._open_inference.live), good=self._open_inference.live)

    async def ready(self) -> Response:
        """Responds with 503 during warm-up, after a failure of a model, and after the stop signal."""
        return _status_response(Ready(ready=self._open_inference.ready), good=self._open_inference.ready)

    async def model(self, request: Request) -> Response:
        """Returns version, inputs and outputs of a model."""
        status = self._status(request)
        tensors = [
            TensorMetadata(name=output.name, datatype=output.datatype, shape=list(SHAPE)) for output in OUTPUTS.values()
        ]
        metadata = ModelMetadata(
            name=status.name,
            versions=[status.version],
            platform=PLATFORM,
            inputs=[TensorMetadata(name=TEXT_INPUT, datatype="BYTES", shape=list(SHAPE))],
            outputs=tensors,
        )
        return JSONResponse(metadata.model_dump())

    async def model_ready(self, request: Request) -> Response:
        """Responds with 503 if the model cannot translate now."""
        status = self._status(request)
        return _status_response(ModelReady(name=status.name, ready=status.ready), good=status.ready)

    async def config(self, request: Request) -> Response:
        """Returns the model's inputs and outputs in Triton's configuration format."""
        status = self._status(request)
        config = ModelConfig(
            name=status.name,
            platform=PLATFORM,
            backend=SERVER,
            max_batch_size=0,
            input=[ConfiguredTensor(name=TEXT_INPUT, data_type="TYPE_STRING", dims=list(SHAPE))],
            output=[
                ConfiguredTensor(name=output.name, data_type=_DATA_TYPES[output.datatype], dims=list(SHAPE))
                for output in OUTPUTS.values()
            ],
            model_transaction_policy={"decoupled": False},
        )
        return JSONResponse(config.model_dump())

    async def index(self, request: Request) -> Response:
        """Lists the models in the order in which requests select them."""
        data, deadline_seconds = await self._reader.read(request)
        wanted = await self._parser.parse(data or b"{}", IndexBody, deadline_seconds)
        statuses = [status for status in self._open_inference.statuses() if status.ready or not wanted.ready]
        return JSONResponse([IndexedModel(**asdict(status)).model_dump() for status in statuses])

    async def infer(self, request: Request) -> Response:
        """Translates all texts of the tensor, or none."""
        data, deadline_seconds = await self._reader.read(request)
        json_data, tensor_data = split_json(data, _json_length(request))
        body = await self._parser.parse(json_data, InferBody, deadline_seconds)
        parsed = TensorRequest(body, tensor_data, self._parser.max_values)
        inference = Inference(
            model=request.path_params["model"],
            version=request.path_params.get("version", ""),
            request_id=parsed.body.id,
            texts=parsed.texts,
            shape=parsed.shape,
            parameters=Parameters.parse(parsed.parameters),
            outputs=parsed.outputs,
            deadline_seconds=deadline_seconds,
        )
        inferred = await unless_disconnected(request, self._open_inference.infer(inference, _record(request)))
        answer, behind = write_answer(inferred, parsed)
        headers = _headers(inferred)
        if not behind:
            return _Answer(answer, headers=headers)
        content = _Answer(answer).body
        headers[JSON_LENGTH_HEADER] = str(len(content))
        return Response(bytes(content) + behind, headers=headers, media_type="application/octet-stream")

    async def generate(self, request: Request) -> Response:
        """Translates one text."""
        inference = await self._receive(request)
        inferred = await unless_disconnected(request, self._open_inference.infer(inference, _record(request)))
        return _Answer(write_generated(inferred), headers=_headers(inferred))

    async def generate_stream(self, request: Request) -> Response:
        """Translates one text and streams its new parts; the last event holds all other fields."""
        inference = await self._receive(request)
        return await EventStream.begin(request, self._open_inference.stream(inference, _record(request)), _EVENT_FORM)

    def _status(self, request: Request) -> ModelStatus:
        return self._open_inference.status(request.path_params["model"], request.path_params.get("version", ""))

    async def _receive(self, request: Request) -> Inference:
        data, deadline_seconds = await self._reader.read(request)
        body = await self._parser.parse(data, GenerateBody, deadline_seconds)
        return Inference(
            model=request.path_params["model"],
            version=request.path_params.get("version", ""),
            request_id=body.id,
            texts=[body.text_input],
            shape=(1,),
            parameters=Parameters.parse({_ALIASES.get(name, name): value for name, value in body.parameters.items()}),
            outputs=tuple(OUTPUTS),
            deadline_seconds=deadline_seconds,
        )


class _Answer(JSONResponse):
    """A UTF-8 JSON response with any content, including NaN and infinity."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _status_response(answer: BaseModel, *, good: bool) -> Response:
    return JSONResponse(answer.model_dump(), HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)


def _headers(inferred: Inferred) -> dict[str, str]:
    return {} if inferred.timings is None else timings_header(inferred.timings)


def _record(request: Request) -> RequestRecord:
    record: RequestRecord = request.state.record
    return record


def _json_length(request: Request) -> int | None:
    value = request.headers.get(JSON_LENGTH_HEADER)
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS):
        raise InvalidRequestError(JSON_LENGTH_HEADER, "expected the length of the JSON in bytes")
    return int(value)


async def _write_event(inferred: Inferred, _: int) -> bytes:
    return format_event(bytes(_Answer(write_generated(inferred)).body))


def _write_event_error(error: ServiceError, _request_id: str, _: int) -> bytes:
    return format_event(bytes(_write_error(error).body))


_EVENT_FORM = EventForm(_write_event, _write_event_error)
