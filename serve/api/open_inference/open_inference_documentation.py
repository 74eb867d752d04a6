"""What OpenAPI says of the REST form of the Open Inference Protocol: what each route takes and answers.

Called by `serve.api.open_inference.http` only.
"""

import re
from http import HTTPStatus
from typing import Any

from serve.api.http_documentation import TIMEOUT_PARAMETER, inlined_schema
from serve.api.open_inference.http_body import GenerateBody, IndexBody, InferBody
from serve.api.open_inference.open_inference_answers import (
    ErrorAnswer,
    GeneratedAnswer,
    IndexedModel,
    InferAnswer,
    Live,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    Ready,
    Server,
)
from serve.errors import CLIENT_CLOSED_REQUEST, ERRORS, ModelNotFoundError
from serve.translation.fields import Fields

_PATH_PARAMETER = re.compile(r"{(\w+)}")
_UNAVAILABLE = int(HTTPStatus.SERVICE_UNAVAILABLE)


_EVENTS = """\
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
_NOT_FOUND = _errors(ModelNotFoundError.http_status)
_STREAM = {200: {"content": {"text/event-stream": {"example": _EVENTS}}}}

# What each handler is to the framework.
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
    "infer": {
        "response_model": InferAnswer,
        "responses": _TRANSLATION_ERRORS,
        "openapi_extra": _body(InferBody),
    },
    "generate": {
        "response_model": GeneratedAnswer,
        "responses": _TRANSLATION_ERRORS,
        "openapi_extra": _body(GenerateBody),
    },
    "generate_stream": {
        "responses": {**_TRANSLATION_ERRORS, **_STREAM},
        "openapi_extra": _body(GenerateBody),
    },
}


def route_documentation(handler: str, path: str) -> dict[str, Any]:
    """Returns what the framework is told of a route.

    Args:
        handler: name of what answers.
        path: with the parts that are filled in as `{name}`.
    """
    route = _ROUTES[handler]
    extra = route.get("openapi_extra", {})
    parameters = [*map(_path_parameter, _PATH_PARAMETER.findall(path)), *extra.get("parameters", ())]
    return {**route, "openapi_extra": {**extra, "parameters": parameters}}
