"""The Open Inference Protocol over REST, with Triton's extensions for binary tensors and text generation.

Errors travel as exceptions to `dragoman.serve.rest.recorder`, which calls `write_error` for paths of this protocol.
"""

import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.open_inference import http_body, protocol
from dragoman.serve.edge.bodies import BodyParser
from dragoman.serve.edge.events import EventForm, EventStream, format_event
from dragoman.serve.edge.interface import Interface
from dragoman.serve.edge.problems import error_headers, timings_header
from dragoman.serve.edge.reader import TIMEOUT_PARAMETER, RequestReader, record_of, unless_disconnected
from dragoman.serve.edge.route_table import OPEN_INFERENCE, Route, RouteGroup
from dragoman.serve.edge.schemas import JSON, content_of, inlined_schema, json_body
from dragoman.serve.errors import CLIENT_CLOSED_REQUEST, ERRORS, InvalidRequestError, ModelNotFoundError, ServiceError
from dragoman.serve.observability.request_metrics import Method
from dragoman.serve.translation.fields import Fields
from dragoman.tables import read_table

_PATH_PARAMETER = re.compile(r"{(\w+)}")
_ROUTES: dict[str, dict[str, Any]] = read_table(__file__, "routes.yaml")["routes"]
_BODIES: dict[str, type[Fields]] = {
    "index": http_body.IndexBody,
    "infer": http_body.InferBody,
    "generate": http_body.GenerateBody,
    "generate_stream": http_body.GenerateBody,
}
# Statuses of errors by their kind.
_ERRORS = {
    "none": set[int](),
    "model": {InvalidRequestError.http_status, ModelNotFoundError.http_status},
    "translation": {int(error.http_status) for error in ERRORS} - {CLIENT_CLOSED_REQUEST} | {415},
}


def describe_route(route: Route) -> dict[str, Any]:
    """Returns FastAPI's arguments for a route, whose path has `{name}` parameters."""
    name = route.handler.__name__
    described = _ROUTES[name]
    answer = {"content": content_of(described["response"], (described.get("media_type", JSON),))}
    responses: dict[int, Any] = {int(HTTPStatus.OK): answer}
    for status in sorted(_ERRORS[described.get("errors", "none")]):
        responses[status] = {"model": http_body.ErrorAnswer}
    if "probe" in described:
        responses[int(HTTPStatus.SERVICE_UNAVAILABLE)] = answer
    body, schema = _BODIES.get(name), {"type": "string"}
    parameters: list[dict[str, Any]] = [
        {"name": parameter, "in": "path", "required": True, "schema": schema}
        for parameter in _PATH_PARAMETER.findall(route.path)
    ]
    if body is None:
        return {"responses": responses, "openapi_extra": {"parameters": parameters}}
    extra = json_body(inlined_schema(body), required=body is not http_body.IndexBody)
    return {"responses": responses, "openapi_extra": {**extra, "parameters": [*parameters, TIMEOUT_PARAMETER]}}


PREFIX = "/v2"
PROBE_PATHS = frozenset({f"{PREFIX}/health/live", f"{PREFIX}/health/ready"})
# Length of the JSON in bytes; binary tensors follow it.
JSON_LENGTH_HEADER = "inference-header-content-length"

# A length with more digits exceeds any body.
_MAX_DIGITS = 18
# Names that clients of other servers send.
_ALIASES = {"max_tokens": "max_target_tokens"}
_METHOD = re.compile(rf"{PREFIX}/models/[^/]+(?:/versions/[^/]+)?/(infer|generate|generate_stream)")
_METHODS: dict[str, Method] = {"infer": "infer", "generate": "generate", "generate_stream": "generate_stream"}


def _write_error(error: ServiceError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.http_status, error_headers(error))


class OpenInferenceHttp(Interface):
    """The routes; its methods are the handlers."""

    def __init__(self, open_inference: protocol.OpenInference, reader: RequestReader, max_values: int) -> None:
        self._open_inference = open_inference
        self._reader = reader
        self._indexes = BodyParser(http_body.IndexBody, max_values)
        self._inferences = BodyParser(http_body.InferBody, max_values)
        self._generations = BodyParser(http_body.GenerateBody, max_values)
        self.routes = RouteGroup(tuple(self._routes()), describe_route, OPEN_INFERENCE)

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
        return JSONResponse(self._open_inference.server)

    async def live(self) -> Response:
        """Responds with 200 while the event loop runs, also in warm-up and shutdown; with 503 if a model hangs."""
        return _probe("live", self._open_inference.live)

    async def ready(self) -> Response:
        """Responds with 503 during warm-up, after a failure of a model, and after the stop signal."""
        return _probe("ready", self._open_inference.ready)

    async def model(self, request: Request) -> Response:
        """Returns version, inputs and outputs of a model."""
        return JSONResponse(self._open_inference.metadata(**_model(request)))

    async def model_ready(self, request: Request) -> Response:
        """Responds with 503 if the model cannot translate now."""
        status = self._open_inference.status(**_model(request))
        return _probe("ready", status.ready, name=status.name)

    async def config(self, request: Request) -> Response:
        """Returns the model's inputs and outputs in Triton's configuration format."""
        return JSONResponse(self._open_inference.config(**_model(request)))

    async def index(self, request: Request) -> Response:
        """Lists the models in the order in which requests select them."""
        data, deadline_seconds = await self._reader.read(request)
        wanted = await self._indexes.parse(data or b"{}", deadline_seconds)
        return JSONResponse(self._open_inference.index(ready=wanted.ready))

    async def infer(self, request: Request) -> Response:
        """Translates all texts of the tensor, or none."""
        data, deadline_seconds = await self._reader.read(request)
        length = _json_length(request, len(data))
        body = await self._inferences.parse(data[:length], deadline_seconds)
        tensors = protocol.read_tensors(
            body.inputs,
            body.outputs,
            lambda tensor: http_body.read_texts(tensor, data[length:], self._inferences.max_values),
        )
        parameters = {name: value for name, value in body.parameters.items() if name != http_body.ALL_BINARY}
        inference = _inference(request, body.id, tensors, parameters, deadline_seconds)
        inferred = await unless_disconnected(request, self._open_inference.infer(inference, record_of(request)))
        answer, behind = http_body.write_answer(inferred, body)
        headers = _headers(inferred)
        if not behind:
            return _Answer(answer, headers=headers)
        content = _Answer(answer).body
        headers[JSON_LENGTH_HEADER] = str(len(content))
        return Response(bytes(content) + behind, headers=headers, media_type="application/octet-stream")

    async def generate(self, request: Request) -> Response:
        """Translates one text."""
        inference = await self._receive(request)
        inferred = await unless_disconnected(request, self._open_inference.infer(inference, record_of(request)))
        return _Answer(http_body.write_generated(inferred), headers=_headers(inferred))

    async def generate_stream(self, request: Request) -> Response:
        """Translates one text and streams its new parts; the last event holds all other fields."""
        inference = await self._receive(request)
        return await EventStream.begin(request, self._open_inference.stream(inference, record_of(request)), _EVENT_FORM)

    async def _receive(self, request: Request) -> protocol.Inference:
        data, deadline_seconds = await self._reader.read(request)
        body = await self._generations.parse(data, deadline_seconds)
        parameters = {_ALIASES.get(name, name): value for name, value in body.parameters.items()}
        return _inference(request, body.id, protocol.TensorRequest([body.text_input]), parameters, deadline_seconds)


def _model(request: Request) -> dict[str, str]:
    return {"model": request.path_params["model"], "version": request.path_params.get("version", "")}


def _inference(
    request: Request,
    request_id: str,
    tensors: protocol.TensorRequest,
    parameters: Mapping[str, Any],
    deadline_seconds: float,
) -> protocol.Inference:
    return protocol.Inference(
        **_model(request),
        request_id=request_id,
        tensors=tensors,
        parameters=protocol.Parameters.parse(parameters),
        deadline_seconds=deadline_seconds,
    )


class _Answer(JSONResponse):
    """A UTF-8 JSON response with any content, including NaN and infinity."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _probe(label: str, good: bool, **more: str) -> Response:
    return JSONResponse({**more, label: good}, HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)


def _headers(inferred: protocol.Inferred) -> dict[str, str]:
    return {} if inferred.timings is None else timings_header(inferred.timings)


def _json_length(request: Request, body_bytes: int) -> int:
    """Returns how much of a body is JSON; raises InvalidRequestError if that is no length, or the body is shorter."""
    value = request.headers.get(JSON_LENGTH_HEADER)
    if value is None:
        return body_bytes
    if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS):
        raise InvalidRequestError(JSON_LENGTH_HEADER, "expected the length of the JSON in bytes")
    length = int(value)
    if length > body_bytes:
        raise InvalidRequestError(JSON_LENGTH_HEADER, f"{length}, expected at most {body_bytes}")
    return length


async def _write_event(inferred: protocol.Inferred, _: int) -> bytes:
    return format_event(bytes(_Answer(http_body.write_generated(inferred)).body))


def _write_event_error(error: ServiceError, _request_id: str, _: int) -> bytes:
    return format_event(bytes(_write_error(error).body))


_EVENT_FORM = EventForm(_write_event, _write_event_error)
