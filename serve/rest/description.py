"""Describes the routes of the REST interface for the OpenAPI document: FastAPI's arguments by name of the handler.

`routes.yaml` has the summaries and the examples.
"""

from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse, StreamingResponse

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.edge.bodies import AttentionBody, DetectBody, ScoreBody, TranslateBody
from dragoman.serve.edge.problems import problem_documentation
from dragoman.serve.edge.reader import TIMEOUT_PARAMETER
from dragoman.serve.edge.schemas import inlined_schema, json_body
from dragoman.serve.errors import InvalidRequestError, ModelNotFoundError, UnauthorizedError
from dragoman.serve.registry.description import ModelDescription, ModelList
from dragoman.serve.registry.reloader import ReloadReport
from dragoman.serve.translation.attention import AttentionResponse
from dragoman.serve.translation.detection import DetectResponse
from dragoman.serve.translation.response import ScoreResponse, TranslationResponse
from dragoman.tables import read_table

_ROUTES: dict[str, dict[str, Any]] = read_table(__file__, "routes.yaml")
# The bodies of the routes of texts, and FastAPI's arguments for their answers.
_TEXTS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "translate": (TranslateBody, {"response_model": TranslationResponse}),
    "translate_stream": (TranslateBody, {"response_class": StreamingResponse}),
    "score": (ScoreBody, {"response_model": ScoreResponse}),
    "attend": (AttentionBody, {"response_model": AttentionResponse}),
    "detect": (DetectBody, {"response_model": DetectResponse}),
}


def describe_texts(direction: BundleDirection) -> dict[str, dict[str, Any]]:
    """Describes the routes of texts, with examples in a direction of the server."""
    return {handler: _describe_text(route, direction, *_TEXTS[handler]) for handler, route in _read(*_TEXTS).items()}


def describe_models() -> dict[str, dict[str, Any]]:
    """Describes the routes of models."""
    routes = _read("list_models", "get_model", "reload")
    routes["list_models"]["response_model"] = ModelList
    unknown = problem_documentation(InvalidRequestError, ModelNotFoundError)
    routes["get_model"] |= {"response_model": ModelDescription, "responses": unknown}
    routes["reload"] |= {"response_model": ReloadReport, "responses": problem_documentation(UnauthorizedError)}
    return routes


def describe_probes() -> dict[str, dict[str, Any]]:
    """Describes the probes."""
    routes = _read("healthz", "readyz", "read_metrics")
    routes["read_metrics"]["response_class"] = PlainTextResponse
    return routes


def _read(*handlers: str) -> dict[str, dict[str, Any]]:
    return {handler: dict(_ROUTES[handler]) for handler in handlers}


def _describe_text(
    route: dict[str, Any], direction: BundleDirection, body: type[Any], answer: dict[str, Any]
) -> dict[str, Any]:
    languages = {"source_language": direction.source, "target_language": direction.target}
    examples: dict[str, dict[str, Any]] = route["examples"]
    if body is not DetectBody:
        examples = {name: {**item, "value": {**item["value"], **languages}} for name, item in examples.items()}
    request = {**json_body(inlined_schema(body), examples=examples), "parameters": [TIMEOUT_PARAMETER]}
    streamed: dict[int | str, Any] = {int(HTTPStatus.OK): route["response"]} if "response" in route else {}
    responses = {**streamed, **problem_documentation()}
    return {"summary": route["summary"], **answer, "openapi_extra": request, "responses": responses}
