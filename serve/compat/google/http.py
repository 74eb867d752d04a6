"""The routes of Google Translate, and how this interface writes errors."""

import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.description import describe_route, group_routes
from dragoman.serve.compat.texts import CompatibleTexts
from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.interface import Interface, Routes, error_documentation, json_response
from dragoman.serve.edge.parameters import ParameterReader, Parameters
from dragoman.serve.edge.problems import error_headers
from dragoman.serve.edge.route_table import GOOGLE, Route
from dragoman.serve.edge.schemas import INTEGER, TEXT, object_of
from dragoman.serve.errors import ServiceError
from dragoman.serve.languages.names import language_name
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.mixed_texts import with_languages
from dragoman.serve.translation.detection import best_guess
from dragoman.serve.translation.markup import PLAIN
from dragoman.serve.translation.request import AUTO, TranslateRequest
from dragoman.tables import read_table

_ROUTES: dict[str, dict[str, Any]] = read_table(__file__, "routes.yaml")["routes"]
_ERRORS = error_documentation(
    object_of(error=object_of(code=INTEGER, message=TEXT, status=TEXT)),
    "A parameter is missing or invalid.",
    "The API key may not do this.",
    {HTTPStatus.UNAUTHORIZED: "The API key is missing or wrong."},
)
MAX_TEXTS = 128
_PATH = "/language/translate/v2"
# Tags, comments and references. Other signs of HTML are text, as in `Q&A` and `a < b`.
_MARKUP = re.compile("<[A-Za-z/!?]|&(?:#|[A-Za-z][A-Za-z0-9]*;)")
# Codes that clients know under another name.
_WRITTEN = {"zh": "zh-CN", "zt": "zh-TW", "pb": "pt-BR"}


def _describe(route: Route) -> dict[str, Any]:
    return describe_route(_ROUTES[route.handler.__name__], route.method, _ERRORS)


class GoogleHttp(Interface):
    """The routes; its methods are the handlers."""

    reads_keys = True

    def __init__(
        self,
        dispatcher: Dispatcher,
        texts: CompatibleTexts,
        reader: ParameterReader,
        authenticator: Authenticator,
        prefix: str,
    ) -> None:
        """Creates the interface; `prefix`: before every path; empty: none."""
        self._dispatcher = dispatcher
        self._texts = texts
        self._languages = texts.languages
        self._reader = reader
        self._authenticator = authenticator
        self._path = f"{prefix}{_PATH}"
        self.methods = {self._path: "google"}
        self.routes = group_routes(self._path, self._routes(), _describe, GOOGLE)

    def owns(self, path: str) -> bool:
        """Returns whether a path is one of the routes."""
        return path == self._path or path.startswith(f"{self._path}/")

    def write_error(self, error: ServiceError, request_id: str) -> Response:  # noqa: ARG002 - bodies have no id
        """Returns the response to a failed request."""
        return _error(error.http_status, str(error), error.grpc_status, error_headers(error))

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:  # noqa: ARG002 - as above
        """Returns the response to an HTTP error."""
        name = "NOT_FOUND" if error.status_code == HTTPStatus.NOT_FOUND else "INVALID_ARGUMENT"
        return _error(error.status_code, error.detail, name, error.headers or {})

    def _routes(self) -> Routes:
        for method in ("GET", "POST"):
            yield method, "", self.translate
            yield method, "/detect", self.detect
            yield method, "/languages", self.languages

    async def translate(self, request: Request) -> Response:
        """Translates each text independently of the others."""
        parameters, deadline_seconds = await self._read(request)
        texts = self._texts_of(parameters)
        given, text_format = _text(parameters, "source"), _text(parameters, "format") or "html"
        if text_format not in ("html", "text"):
            raise _invalid("format", text_format)
        if not (wanted := _text(parameters, "target")):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "Missing parameter: target")
        source, target = self._languages.find_pair(given or None, wanted, _invalid)
        # A text without markup is the same in both formats, apart from the entities of its translation.
        markup = text_format == "html" and any(map(_MARKUP.search, texts))
        found = await self._languages.languages_of(texts, source, target, deadline_seconds, markup=markup)
        sources = with_languages(texts, found)
        if (language := self._texts.unserved(sources, target)) is not None:
            raise _invalid("target", f"{_written(target)} from {_written(language)}")
        order = TranslateRequest(
            target_language=target, format="html" if markup else PLAIN, deadline_seconds=deadline_seconds
        )
        translations = await self._texts.translate(request, sources, order)
        answers = list[dict[str, str]]()
        for each, translation in zip(sources, translations, strict=True):
            text = each.text if translation is None else translation.text
            answer = {"translatedText": html.escape(text) if text_format == "html" and not markup else text}
            answers.append(answer if source != AUTO else {**answer, "detectedSourceLanguage": _written(each.language)})
        return json_response({"data": {"translations": answers}})

    async def detect(self, request: Request) -> Response:
        """Detects the language of each text among the served ones."""
        parameters, deadline_seconds = await self._read(request)
        found = await self._dispatcher.detect(self._texts_of(parameters), deadline_seconds)
        likely = [best_guess(detection, self._languages.sources) for detection in found.detections]
        detections = [
            [{"language": _written(language.code), "confidence": language.confidence, "isReliable": False}]
            for language in likely
        ]
        return json_response({"data": {"detections": detections}})

    async def languages(self, request: Request) -> Response:
        """Lists the languages; with a target, with their names, which are in English whatever the target is."""
        parameters, _ = await self._read(request)
        languages = [{"language": _written(code), "name": language_name(code)} for code in self._languages]
        if not _text(parameters, "target"):
            languages = [{"language": each["language"]} for each in languages]
        return json_response({"data": {"languages": languages}})

    def _texts_of(self, parameters: Parameters) -> list[str]:
        values = parameters.all("q")
        texts = [value for value in values if isinstance(value, str)]
        if not texts or len(texts) < len(values):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "Required Text: q must be a text or a list of texts")
        if len(texts) > MAX_TEXTS:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"Too many text segments: {len(texts)} of {MAX_TEXTS}")
        self._dispatcher.check_texts(texts)
        return texts

    async def _read(self, request: Request) -> tuple[Parameters, float]:
        parameters, deadline_seconds = await self._reader.read(request)
        headers = request.headers.getlist("authorization")
        key = request.query_params.get("key") or request.headers.get("x-goog-api-key") or parameters.first("key")
        if isinstance(key, str) and key:
            headers = [f"Bearer {key}"]
        request.state.record.account = self._authenticator.check_key(*headers)
        return parameters, deadline_seconds


def _written(code: str) -> str:
    return _WRITTEN.get(code, code)


def _text(parameters: Parameters, name: str) -> str:
    value = parameters.first(name)
    if value is None or isinstance(value, str):
        return value or ""
    raise _invalid(name, str(value))


def _invalid(name: str, value: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, f"Invalid Value: {name}: {value[:64]!r}")


def _error(status: int, message: str, name: str, headers: Mapping[str, str]) -> Response:
    reason = {
        "message": message,
        "domain": "global",
        "reason": "invalid" if name == "INVALID_ARGUMENT" else name.lower(),
    }
    error = {"code": int(status), "message": message, "errors": [reason], "status": name}
    return JSONResponse({"error": error}, status, dict(headers))
