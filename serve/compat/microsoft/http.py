"""The routes of Microsoft Translator, and how this interface writes errors."""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.description import describe_route, group_routes
from dragoman.serve.compat.texts import CompatibleTexts
from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.bodies import SMALL_BODY_BYTES
from dragoman.serve.edge.interface import Interface, Routes, error_documentation, json_response
from dragoman.serve.edge.problems import error_headers
from dragoman.serve.edge.reader import RequestReader
from dragoman.serve.edge.route_table import MICROSOFT, Route
from dragoman.serve.edge.schemas import INTEGER, TEXT, object_of
from dragoman.serve.edge.value_limit import check_json
from dragoman.serve.errors import QuotaExceededError, ServiceError
from dragoman.serve.languages.names import language_name
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.mixed_texts import with_languages
from dragoman.serve.translation.detection import DetectedLanguage, Detection, best_guess
from dragoman.serve.translation.large_work import run_part
from dragoman.serve.translation.markup import PLAIN
from dragoman.serve.translation.request import AUTO, TranslateRequest
from dragoman.tables import read_table

_ROUTES: dict[str, dict[str, Any]] = read_table(__file__, "routes.yaml")["routes"]
_ERRORS = error_documentation(
    object_of(error=object_of(code=INTEGER, message=TEXT)),
    "A parameter is missing or invalid.",
    "The API key may not do this, or has used its characters.",
    {HTTPStatus.UNAUTHORIZED: "The API key is missing or wrong."},
)
VERSION = "3.0"
# The limits of one request, as clients know them.
MAX_TEXTS, MAX_TARGETS = 1000, 16
# Codes that clients know under another name.
_WRITTEN = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-br", "no": "nb"}
_RIGHT_TO_LEFT = {"ar", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"}
# Routes that this server lacks.
_MISSING = ("/breaksentence", "/transliterate", "/dictionary/lookup", "/dictionary/examples")
# Numbers of errors, in thousands of their status.
_INVALID, _VERSION, _SOURCE, _TARGET, _TEXT_TYPE, _BODY = 0, 21, 35, 36, 24, 74


_ITEMS = TypeAdapter(list[dict[str, str]])


def _describe(route: Route) -> dict[str, Any]:
    return describe_route(_ROUTES[route.handler.__name__], route.method, _ERRORS)


class MicrosoftHttp(Interface):
    """The routes; its methods are the handlers."""

    reads_keys = True

    def __init__(
        self,
        dispatcher: Dispatcher,
        texts: CompatibleTexts,
        reader: RequestReader,
        authenticator: Authenticator,
        *,
        max_values: int,
        prefix: str,
    ) -> None:
        """Creates the interface.

        Args:
            max_values: of a body.
            prefix: before every path; empty: none.
        """
        self._dispatcher = dispatcher
        self._texts = texts
        self._languages = texts.languages
        self._reader = reader
        self._authenticator = authenticator
        self._max_values = max_values
        self.methods = {f"{prefix}/translate": "microsoft"}
        self.routes = group_routes(prefix, self._routes(), _describe, MICROSOFT)
        self._paths = {f"{prefix}{path}" for path in (*_MISSING, *(path for _, path, _ in self._routes()))}

    def owns(self, path: str) -> bool:
        """Returns whether a path is one of Microsoft's, also if this server lacks its function."""
        return path in self._paths

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Returns the header that clients show in their errors."""
        return {"x-requestid": request_id}

    def write_error(self, error: ServiceError, request_id: str) -> Response:  # noqa: ARG002 - it is in a header
        """Returns the response to a failed request."""
        status = HTTPStatus.FORBIDDEN if isinstance(error, QuotaExceededError) else error.http_status
        return _error(status, _INVALID, str(error), error_headers(error))

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:  # noqa: ARG002 - as above
        """Returns the response to an HTTP error."""
        number = error.number if isinstance(error, RefusedError) else _INVALID
        return _error(error.status_code, number, error.detail, error.headers or {})

    def _routes(self) -> Routes:
        yield "POST", "/translate", self.translate
        yield "POST", "/detect", self.detect
        yield "GET", "/languages", self.languages

    async def translate(self, request: Request) -> Response:
        """Translates each text independently of the others, into each target."""
        texts, deadline_seconds = await self._read(request)
        query = request.query_params
        text_type = query.get("textType", "plain").lower()
        if text_type not in ("plain", "html"):
            raise RefusedError(_TEXT_TYPE, "The textType is not valid, expected plain or html.")
        targets = query.getlist("to")
        if not 1 <= len(targets) <= MAX_TARGETS:
            raise RefusedError(_TARGET, f"The target language is not valid: expected 1 to {MAX_TARGETS} of them.")
        pairs = [self._languages.find_pair(query.get("from") or None, target, _unserved) for target in targets]
        (source, target), markup = pairs[0], text_type == "html"
        found = await self._languages.languages_of(texts, source, target, deadline_seconds, markup=markup)
        sources = with_languages(texts, found)
        answers = [_detected(language) if source == AUTO else {} for language in found]
        # A refused request translates nothing, so that its key pays nothing.
        for _, target in pairs:
            if (language := self._texts.unserved(sources, target)) is not None:
                raise _unserved("target", f"{target} from {language}")
        order = TranslateRequest(format="html" if markup else PLAIN, deadline_seconds=deadline_seconds)
        orders = [order._replace(target_language=target) for _, target in pairs]
        found_each = await self._texts.translate_each(request, sources, *orders)
        for translations, written in zip(found_each, targets, strict=True):
            for answer, each, translation in zip(answers, sources, translations, strict=True):
                text = each.text if translation is None else translation.text
                answer.setdefault("translations", []).append({"text": text, "to": written})
        return json_response(answers)

    async def detect(self, request: Request) -> Response:
        """Detects the language of each text among the served ones."""
        texts, deadline_seconds = await self._read(request)
        found = await self._dispatcher.detect(texts, deadline_seconds)
        return json_response([self._detection(detection) for detection in found.detections])

    async def languages(self, request: Request) -> Response:
        """Lists the languages of translation; needs no key."""
        _check_version(request)
        listed = {
            _WRITTEN.get(code, code): {
                "name": language_name(code),
                "nativeName": language_name(code),
                "dir": "rtl" if code in _RIGHT_TO_LEFT else "ltr",
            }
            for code in self._languages
        }
        return json_response({"translation": listed})

    def _detection(self, detection: Detection) -> dict[str, object]:
        best = best_guess(detection, self._languages.sources)
        described = {"isTranslationSupported": True, "isTransliterationSupported": False}
        return {"language": _WRITTEN.get(best.code, best.code), "score": best.confidence, **described}

    async def _read(self, request: Request) -> tuple[list[str], float]:
        """Returns the texts and the deadline of an authenticated request."""
        headers = request.headers.getlist("authorization")
        if key := request.headers.get("ocp-apim-subscription-key") or request.query_params.get("subscription-key"):
            headers = [f"Bearer {key}"]
        # No body of a stranger is read.
        request.state.record.account = self._authenticator.check_key(*headers)
        data, deadline_seconds = await self._reader.read(request)
        _check_version(request)
        parse = partial(_parse, data, self._max_values)
        texts = parse() if len(data) <= SMALL_BODY_BYTES else await run_part(deadline_seconds, parse)
        self._dispatcher.check_texts(texts)
        return texts, deadline_seconds


class RefusedError(HTTPException):
    """A refusal with a number, which programs read."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, text)
        self.number = number


def _parse(data: bytes, max_values: int) -> list[str]:
    check_json(data, max_values)
    try:
        items = _ITEMS.validate_json(data)
        texts = [next(value for name, value in item.items() if name.lower() == "text") for item in items]
    except (ValidationError, StopIteration) as error:
        raise RefusedError(_BODY, 'The body of the request is not valid JSON: expected [{"Text": "..."}].') from error
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise RefusedError(_BODY, f"The body has {len(texts)} texts, expected 1 to {MAX_TEXTS}.")
    return texts


def _check_version(request: Request) -> None:
    if request.query_params.get("api-version") != VERSION:
        raise RefusedError(_VERSION, f"The API version parameter is missing or invalid, expected {VERSION}.")


def _unserved(side: str, code: str) -> RefusedError:
    number = _SOURCE if side == "source" else _TARGET
    return RefusedError(number, f"The {side} language is not valid: {code[:64]!r}.")


def _detected(language: DetectedLanguage) -> dict[str, Any]:
    written = _WRITTEN.get(language.code, language.code)
    return {"detectedLanguage": {"language": written, "score": language.confidence}}


def _error(status: int, number: int, message: str, headers: Mapping[str, str]) -> Response:
    return JSONResponse({"error": {"code": 1000 * int(status) + number, "message": message}}, status, dict(headers))
