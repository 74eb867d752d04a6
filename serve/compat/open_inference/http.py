"""The Open Inference Protocol over REST, with Triton's extensions for binary tensors and text generation.

Errors travel as exceptions to `dragoman.serve.rest.recorder`, which calls `write_error` for paths of this protocol.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.open_inference import http_body, protocol
from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER, inlined_schema
from dragoman.serve.edge.body_parser import BodyParser
from dragoman.serve.edge.events import EventForm, EventStream, format_event
from dragoman.serve.edge.interface import Interface
from dragoman.serve.edge.problems import error_headers, timings_header
from dragoman.serve.edge.reader import RequestReader, unless_disconnected
from dragoman.serve.edge.route_table import OPEN_INFERENCE, Route, RouteGroup
from dragoman.serve.edge.schemas import json_body
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
    return {int(status): {"model": http_body.ErrorAnswer} for status in statuses}


def _body(kind: type[Fields], *, required: bool = True) -> dict[str, Any]:
    return {**json_body(inlined_schema(kind), required=required), "parameters": [TIMEOUT_PARAMETER]}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


_STATUSES = {int(error.http_status) for error in ERRORS} - {CLIENT_CLOSED_REQUEST}
_TRANSLATION_ERRORS = _errors(*sorted(_STATUSES), HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
_NOT_FOUND = _errors(InvalidRequestError.http_status, ModelNotFoundError.http_status)
_STREAM = {200: {"content": {"text/event-stream": {"example": _EVENTS_EXAMPLE}}}}


def _probe(model: type[BaseModel]) -> dict[str, Any]:
    return {"response_model": model, "responses": {_UNAVAILABLE: {"model": model}}}


def _post(model: Any, body: type[Fields], *, required: bool = True) -> dict[str, Any]:
    return {"response_model": model, "responses": _TRANSLATION_ERRORS, "openapi_extra": _body(body, required=required)}


_model_ready = _probe(http_body.ModelReady)
# FastAPI's arguments for the route of each handler.
_ROUTES: dict[str, dict[str, Any]] = {
    "server": {"response_model": http_body.Server},
    "live": _probe(http_body.Live),
    "ready": _probe(http_body.Ready),
    "model": {"response_model": http_body.ModelMetadata, "responses": _NOT_FOUND},
    "model_ready": {**_model_ready, "responses": {**_NOT_FOUND, **_model_ready["responses"]}},
    "config": {"response_model": http_body.ModelConfig, "responses": _NOT_FOUND},
    "index": _post(list[http_body.IndexedModel], http_body.IndexBody, required=False),
    "infer": _post(http_body.InferAnswer, http_body.InferBody),
    "generate": _post(http_body.GeneratedAnswer, http_body.GenerateBody),
    "generate_stream": {
        "responses": {**_TRANSLATION_ERRORS, **_STREAM},
        "openapi_extra": _body(http_body.GenerateBody),
    },
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


class OpenInferenceHttp(Interface):
    """Builds the routes; its methods are the handlers."""

    def __init__(self, open_inference: protocol.OpenInference, reader: RequestReader, parser: BodyParser) -> None:
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

    def write_error(self, error: ServiceError, request_id: str) -> JSONResponse:  # noqa: ARG002 - it is in a header
        """Returns the response to a failed request."""
        return _write_error(error)

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
        server = http_body.Server(
            name=protocol.SERVER, version=self._open_inference.server_version, extensions=list(protocol.EXTENSIONS)
        )
        return JSONResponse(server.model_dump())

    async def live(self) -> Response:
        """Responds with 200 while the event loop runs, also in warm-up and shutdown; with 503 if a model hangs."""
        return _status_response(http_body.Live(live=self._open_inference.live), good=self._open_inference.live)

    async def ready(self) -> Response:
        """Responds with 503 during warm-up, after a failure of a model, and after the stop signal."""
        return _status_response(http_body.Ready(ready=self._open_inference.ready), good=self._open_inference.ready)

    async def model(self, request: Request) -> Response:
        """Returns version, inputs and outputs of a model."""
        status = self._status(request)
        metadata = http_body.ModelMetadata(
            name=status.name,
            versions=[status.version],
            platform=protocol.PLATFORM,
            inputs=[_described(protocol.TEXT_INPUT, "BYTES")],
            outputs=[_described(output.name, output.datatype) for output in protocol.OUTPUTS.values()],
        )
        return JSONResponse(metadata.model_dump())

    async def model_ready(self, request: Request) -> Response:
        """Responds with 503 if the model cannot translate now."""
        status = self._status(request)
        return _status_response(http_body.ModelReady(name=status.name, ready=status.ready), good=status.ready)

    async def config(self, request: Request) -> Response:
        """Returns the model's inputs and outputs in Triton's configuration format."""
        status = self._status(request)
        config = http_body.ModelConfig(
            name=status.name,
            platform=protocol.PLATFORM,
            backend=protocol.SERVER,
            max_batch_size=0,
            input=[_configured(protocol.TEXT_INPUT, "BYTES")],
            output=[_configured(output.name, output.datatype) for output in protocol.OUTPUTS.values()],
            model_transaction_policy={"decoupled": False},
        )
        return JSONResponse(config.model_dump())

    async def index(self, request: Request) -> Response:
        """Lists the models in the order in which requests select them."""
        data, deadline_seconds = await self._reader.read(request)
        wanted = await self._parser.parse(data or b"{}", http_body.IndexBody, deadline_seconds)
        statuses = [status for status in self._open_inference.statuses() if status.ready or not wanted.ready]
        return JSONResponse([http_body.IndexedModel(**asdict(status)).model_dump() for status in statuses])

    async def infer(self, request: Request) -> Response:
        """Translates all texts of the tensor, or none."""
        data, deadline_seconds = await self._reader.read(request)
        json_data, tensor_data = http_body.split_json(data, _json_length(request))
        body = await self._parser.parse(json_data, http_body.InferBody, deadline_seconds)
        parsed = http_body.TensorRequest(body, tensor_data, self._parser.max_values)
        inference = protocol.Inference(
            model=request.path_params["model"],
            version=request.path_params.get("version", ""),
            request_id=parsed.body.id,
            texts=parsed.texts,
            shape=parsed.shape,
            parameters=protocol.Parameters.parse(parsed.parameters),
            outputs=parsed.outputs,
            deadline_seconds=deadline_seconds,
        )
        inferred = await unless_disconnected(request, self._open_inference.infer(inference, _record(request)))
        answer, behind = http_body.write_answer(inferred, parsed)
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
        return _Answer(http_body.write_generated(inferred), headers=_headers(inferred))

    async def generate_stream(self, request: Request) -> Response:
        """Translates one text and streams its new parts; the last event holds all other fields."""
        inference = await self._receive(request)
        return await EventStream.begin(request, self._open_inference.stream(inference, _record(request)), _EVENT_FORM)

    def _status(self, request: Request) -> protocol.ModelStatus:
        return self._open_inference.status(request.path_params["model"], request.path_params.get("version", ""))

    async def _receive(self, request: Request) -> protocol.Inference:
        data, deadline_seconds = await self._reader.read(request)
        body = await self._parser.parse(data, http_body.GenerateBody, deadline_seconds)
        return protocol.Inference(
            model=request.path_params["model"],
            version=request.path_params.get("version", ""),
            request_id=body.id,
            texts=[body.text_input],
            shape=(1,),
            parameters=protocol.Parameters.parse(
                {_ALIASES.get(name, name): value for name, value in body.parameters.items()}
            ),
            outputs=tuple(protocol.OUTPUTS),
            deadline_seconds=deadline_seconds,
        )


class _Answer(JSONResponse):
    """A UTF-8 JSON response with any content, including NaN and infinity."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _described(name: str, datatype: str) -> http_body.TensorMetadata:
    return http_body.TensorMetadata(name=name, datatype=datatype, shape=list(protocol.SHAPE))


def _configured(name: str, datatype: str) -> http_body.ConfiguredTensor:
    return http_body.ConfiguredTensor(name=name, data_type=_DATA_TYPES[datatype], dims=list(protocol.SHAPE))


def _status_response(answer: BaseModel, *, good: bool) -> Response:
    return JSONResponse(answer.model_dump(), HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)


def _headers(inferred: protocol.Inferred) -> dict[str, str]:
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


async def _write_event(inferred: protocol.Inferred, _: int) -> bytes:
    return format_event(bytes(_Answer(http_body.write_generated(inferred)).body))


def _write_event_error(error: ServiceError, _request_id: str, _: int) -> bytes:
    return format_event(bytes(_write_error(error).body))


_EVENT_FORM = EventForm(_write_event, _write_event_error)
