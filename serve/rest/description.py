"""Describes the routes of the REST interface for the OpenAPI document: FastAPI's arguments by name of the handler."""

from typing import Any

from starlette.responses import PlainTextResponse, StreamingResponse

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.edge import bodies
from dragoman.serve.edge.problems import problem_documentation
from dragoman.serve.errors import InvalidRequestError, ModelNotFoundError, UnauthorizedError
from dragoman.serve.registry.registry import ModelDescription
from dragoman.serve.registry.reloader import ReloadReport
from dragoman.serve.translation.attention import AttentionResponse
from dragoman.serve.translation.detection import DetectResponse
from dragoman.serve.translation.response import ScoreResponse, TranslationResponse


def describe_texts(direction: BundleDirection) -> dict[str, dict[str, Any]]:
    """Describes the routes of texts, with examples in a direction of the server."""
    failures, texts = {"responses": problem_documentation()}, bodies.translate_documentation(direction)
    return {
        "translate": {
            "summary": "Translates all texts of the request",
            "response_model": TranslationResponse,
            "openapi_extra": texts,
            **failures,
        },
        "translate_stream": {
            "summary": "Translates all texts of the request and streams the translations as they grow",
            "response_class": StreamingResponse,
            "openapi_extra": texts,
            "responses": {**bodies.stream_documentation(), **problem_documentation()},
        },
        "score": {
            "summary": "Scores given translations",
            "response_model": ScoreResponse,
            "openapi_extra": bodies.score_documentation(direction),
            **failures,
        },
        "attend": {
            "summary": "Returns the cross-attention of any layer and head for given translations",
            "response_model": AttentionResponse,
            "openapi_extra": bodies.attention_documentation(direction),
            **failures,
        },
        "detect": {
            "summary": "Detects the languages of texts among the source languages of the models",
            "response_model": DetectResponse,
            "openapi_extra": bodies.detect_documentation(),
            **failures,
        },
    }


def describe_models() -> dict[str, dict[str, Any]]:
    """Describes the routes of models."""
    unknown = problem_documentation(InvalidRequestError, ModelNotFoundError)
    return {
        "list_models": {
            "summary": "Lists the models in the order in which requests without a model name select them",
            "response_model": dict[str, tuple[ModelDescription, ...]],
        },
        "get_model": {"summary": "Returns one model", "response_model": ModelDescription, "responses": unknown},
        "reload": {
            "summary": "Reloads the models; requires the header `Authorization: Bearer KEY`",
            "response_model": ReloadReport,
            "responses": problem_documentation(UnauthorizedError),
        },
    }


def describe_probes() -> dict[str, dict[str, Any]]:
    """Describes the probes."""
    return {
        "healthz": {"summary": "Liveness: the process responds"},
        "readyz": {"summary": "Readiness: the server can translate now"},
        "read_metrics": {"summary": "Metrics in Prometheus text format", "response_class": PlainTextResponse},
    }
