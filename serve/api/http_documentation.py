"""What OpenAPI says of requests, beyond what the web framework can see: bodies with examples, and the timeout header.

Bodies are parsed by `serve.api.http_body`, not by the framework, which therefore cannot describe them. Called by
`serve.api.http_api` only.
"""

from http import HTTPStatus
from typing import Any

from serve.api.http_body import ScoreBody, TranslateBody
from serve.api.http_reader import MAX_TIMEOUT_MS, TIMEOUT_HEADER
from serve.bundle.manifest import BundleDirection
from serve.translation.fields import Fields

TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "Milliseconds after which the client stops waiting, and so does the server.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
}


def translate_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns what `POST /v1/translate` and its stream take, with an example for each kind of search."""
    languages = {"source_language": direction.source, "target_language": direction.target}
    text = {"text": ["Good morning.", "How are you?"], **languages}
    examples = {
        "greedy": {"summary": "The most probable token at each step", "value": text},
        "beam": {
            "summary": "Beam search, with its two best translations and every token's score",
            "value": {**text, "options": {"beam_size": 4, "hypotheses": 2, "token_scores": True}},
        },
        "samples": {
            "summary": "Two translations at random, the same ones each time",
            "value": {**text, "options": {"temperature": 0.8, "top_p": 0.9, "hypotheses": 2, "seed": 7}},
        },
        "prefix": {
            "summary": "Translations that start as the client says, the second one as it likes",
            "value": {**text, "target_prefix": ["A", ""], "options": {"max_target_ratio": 3.0}},
        },
    }
    return _documentation(TranslateBody, examples)


def stream_documentation() -> dict[int | str, dict[str, Any]]:
    """Returns what `POST /v1/translate/stream` answers with."""
    events = (
        (1, "delta", '{"text_index": 0, "text": "Guten", "target_tokens": 1}'),
        (2, "delta", '{"text_index": 0, "text": " Morgen.", "target_tokens": 3, "finish_reason": "eos"}'),
        (3, "result", '{"translations": [...], "timings": {...}}'),
    )
    example = "".join(f"id: {number}\nevent: {name}\ndata: {data}\n\n" for number, name, data in events)
    description = (
        "Server-sent events: `delta` with the `text_index` of a text, the `text` that is new, the `target_tokens` so "
        "far and, in the last one of each text, the `finish_reason`; at last one `result`, which holds what "
        "`/v1/translate` answers, or one `error`, which holds a problem. Comments come while nothing else does."
    )
    content = {"text/event-stream": {"example": example}}
    return {int(HTTPStatus.OK): {"description": description, "content": content}}


def score_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns what `POST /v1/score` takes."""
    pair = {"text": "Good morning.", "translation": "Good morning."}
    value = {"pairs": [pair], "source_language": direction.source, "target_language": direction.target}
    return _documentation(ScoreBody, {"pair": {"summary": "One pair", "value": value}})


def _documentation(body: type[Fields], examples: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": inlined_schema(body), "examples": examples}
    return {
        "requestBody": {"required": True, "content": {"application/json": content}},
        "parameters": [TIMEOUT_PARAMETER],
    }


def inlined_schema(body: type[Fields]) -> Any:
    """Returns the schema of a body without references, which would lead nowhere inside of OpenAPI's."""
    schema = body.model_json_schema()
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Returns a schema with definitions in the place of references."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    referred = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    own = {name: value for name, value in schema.items() if name != "$ref"}
    return {name: _inlined(value, definitions) for name, value in {**referred, **own}.items()}
