"""The routes of LibreTranslate, and how this interface writes errors."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.description import describe_route
from dragoman.serve.compat.libretranslate.files import DOWNLOAD, LibreTranslateFiles
from dragoman.serve.compat.libretranslate.request import (
    TranslateParameters,
    check_lengths,
    find_pair,
    refuse,
    required,
    unavailable,
    written_code,
)
from dragoman.serve.compat.texts import CompatibleTexts
from dragoman.serve.documents_api.translator import DocumentParts
from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.form_parser import FORM, MULTIPART
from dragoman.serve.edge.interface import Interface, error_documentation, json_response
from dragoman.serve.edge.parameters import ParameterReader, Parameters
from dragoman.serve.edge.problems import error_headers
from dragoman.serve.edge.route_table import HIDDEN, LIBRETRANSLATE, Route, RouteGroup
from dragoman.serve.edge.schemas import JSON, TEXT, object_of
from dragoman.serve.errors import InvalidRequestError, ServiceError, UnauthorizedError
from dragoman.serve.host.threads import MEMORIES
from dragoman.serve.languages.names import language_name
from dragoman.serve.memory.corrections import Correction, CorrectionStore
from dragoman.serve.memory.entry import Client, Entry, Pair
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.mixed_texts import Parts, SourceText, translate_texts, with_languages
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.detection import DetectedLanguage, best_guess
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import AUTO, TranslateRequest
from dragoman.serve.translation.response import Translation
from dragoman.tables import read_table

_ROUTES: dict[str, dict[str, Any]] = read_table(__file__, "routes.yaml")["routes"]
_ERRORS = error_documentation(
    object_of("error", error=TEXT),
    "A parameter is missing or invalid.",
    "The API key is wrong, or the function is off.",
    {HTTPStatus.CONFLICT: "The file is not translated."},
)


_FRONTEND_TIMEOUT_MS = 500
# Any page may call this interface, as that of LibreTranslate.
_CORS = MappingProxyType(
    {
        "access-control-allow-origin": "*",
        "access-control-allow-headers": "Authorization, Content-Type",
        "access-control-allow-methods": "GET, POST",
        "access-control-max-age": "1728000",
    }
)
# Without keys, these paths store something for any client.
_STORING = ("/suggest", "/translate_file")
_PERCENT = 100


class MissingKeyError(UnauthorizedError):
    """The request has no API key; this interface reports that as an invalid request."""


def _describe_route(route: Route) -> Mapping[str, Any]:
    name = route.handler.__name__
    if name in ("preflight", "spec"):
        return HIDDEN
    described = _ROUTES[name]
    media_types = (MULTIPART,) if name == "translate_file" else (JSON, FORM, MULTIPART)
    return describe_route(described, route.method, {} if "never_fails" in described else _ERRORS, media_types)


class LibreTranslateHttp(Interface):
    """Builds the routes; its methods are the handlers."""

    reads_keys = True

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: ModelRegistry,
        reader: ParameterReader,
        authenticator: Authenticator,
        settings: ServeSettings,
        *,
        documents: DocumentParts,
        corrections: CorrectionStore | None,
    ) -> None:
        """Creates the interface.

        Args:
            models: at least one.
            authenticator: of keys in parameters and headers.
            settings: the prefix of every path, the address for clients, and the limit of alternatives. Pages of any
                origin may call the routes if the settings name none.
            corrections: None: they are refused.
        """
        prefix = settings.libretranslate_path.rstrip("/")
        self._dispatcher = dispatcher
        self._models = models
        self._authenticator = authenticator
        self._texts = CompatibleTexts(dispatcher, models, placeholders=settings.compatible_placeholders)
        self._languages = self._texts.languages
        self._prefix = prefix
        self.methods = {f"{prefix}/translate": "libretranslate"}
        self._receive = partial(self._read, reader)
        receive_large = partial(self._read, documents.reader)
        self._files = LibreTranslateFiles(
            documents, self._languages, receive_large, prefix=prefix, public_url=settings.public_url
        )
        self._max_alternatives = settings.libretranslate_alternatives
        self._corrections = corrections
        self._headers = MappingProxyType({}) if settings.cors_origins else _CORS
        self._paths = {f"{prefix}{path}" for _, path, _ in self._routes()}
        self._storing = {f"{prefix}{path}" for path in _STORING}

    def owns(self, path: str) -> bool:
        """Returns whether a path is one of the routes."""
        return path in self._paths or path.startswith(f"{self._prefix}{DOWNLOAD}/")

    def is_open_to_pages(self, path: str) -> bool:
        """Returns whether pages of any origin may send requests to a path: not if it stores something."""
        return bool(self._headers) and path not in self._storing

    def headers(self, request_id: str) -> Mapping[str, str]:  # noqa: ARG002 - other interfaces have the id in a header
        """Returns the headers for pages of other origins."""
        return self._headers

    def write_error(self, error: ServiceError, request_id: str) -> Response:  # noqa: ARG002 - as above
        """Returns the response to a failed request."""
        status, text = int(error.http_status), str(error)
        if isinstance(error, UnauthorizedError):
            status = HTTPStatus.BAD_REQUEST if isinstance(error, MissingKeyError) else HTTPStatus.FORBIDDEN
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            text = f"Slowdown: {text}"
        return JSONResponse({"error": text}, status, error_headers(error))

    def routes(self, document: Callable[[], Awaitable[dict[str, Any]]]) -> RouteGroup:
        """Returns the routes. `/spec` returns their part of the OpenAPI document of the server."""
        routes = list[Route]()
        for method, path, handler in self._routes():
            routes.append(Route(method, f"{self._prefix}{path}", handler))
            routes.append(Route("OPTIONS", f"{self._prefix}{path}", self.preflight))

        written = b""

        async def spec() -> Response:
            nonlocal written
            if not written:
                whole = await document()
                paths = {path: item for path, item in whole["paths"].items() if path in self._paths}
                written = bytes(JSONResponse({**whole, "paths": paths}).body)
            return Response(written, media_type="application/json")

        routes.append(Route("GET", f"{self._prefix}/spec", spec))
        self._paths.add(f"{self._prefix}/spec")
        return RouteGroup(tuple(routes), _describe_route, LIBRETRANSLATE)

    def _routes(self) -> Iterator[tuple[str, str, Callable[..., Awaitable[object]]]]:
        yield "POST", "/translate", self.translate
        yield "POST", "/detect", self.detect
        yield "POST", "/suggest", self.suggest
        yield "POST", "/translate_file", self._files.translate_file
        yield "GET", f"{DOWNLOAD}/{{name}}", self._files.download_file
        yield "GET", "/languages", self.languages
        yield "GET", "/health", self.health
        yield "GET", "/frontend/settings", self.frontend_settings

    async def preflight(self) -> Response:
        """Lets a page of another origin send its request."""
        return Response(headers={"allow": "GET, POST, OPTIONS"})

    async def translate(self, request: Request) -> Response:
        """Translates a text or a list of texts, each independently of the others."""
        parameters, deadline_seconds = await self._receive(request)
        # The alternatives of a text must fit into the slots of one engine.
        most = min(self._max_alternatives, self._texts.slots - 1)
        wanted = TranslateParameters.parse(parameters, most)
        check_lengths(wanted.texts, *self._limits())
        source, target = find_pair(self._languages, wanted.source, wanted.target)
        markup = wanted.text_format == "html"
        detected = await self._languages.languages_of(wanted.texts, source, target, deadline_seconds, markup=markup)
        wanted.check_format(html=any(model.settings.alignments for model in self._models))
        sources = with_languages(wanted.texts, detected)
        if (language := self._texts.unserved(sources, target)) is not None:
            raise unavailable(language, target)
        order = TranslateRequest(
            target_language=target,
            format=wanted.text_format,
            preserve_formatting=self._texts.aligned,
            deadline_seconds=deadline_seconds,
        )
        several = wanted.alternatives and not markup
        work = partial(_translate_several, rows=wanted.alternatives + 1) if several else translate_texts
        translations = await self._texts.translate(request, sources, order, work)
        return json_response(_answer(wanted, translations, detected))

    async def detect(self, request: Request) -> Response:
        """Detects the language of a text among the served ones."""
        parameters, deadline_seconds = await self._receive(request)
        text = required(parameters, "q")
        (found,) = (await self._dispatcher.detect([text], deadline_seconds)).detections
        likely = found.languages or [best_guess(found, self._languages.sources)]
        return JSONResponse([_detection(item) for item in likely])

    async def suggest(self, request: Request) -> Response:
        """Stores a correction, which changes no translation before it is approved."""
        parameters, deadline_seconds = await self._receive(request)
        if self._corrections is None:
            raise refuse("Suggestions are disabled on this server.", HTTPStatus.FORBIDDEN)
        text, better, source, target = (required(parameters, name) for name in ("q", "s", "source", "target"))
        check_lengths([text, better], 2, self._limits()[1])
        pair = find_pair(self._languages, source, target)
        record: RequestRecord = request.state.record
        (detected,) = await self._languages.languages_of([text], *pair, deadline_seconds, markup=False)
        correction = Correction(Pair(detected.code, pair[1]), Entry(text, better))
        await MEMORIES.run(self._corrections.add, Client(record.account_id, record.caller), correction)
        return JSONResponse({"success": True})

    async def languages(self) -> Response:
        """Lists the languages with the targets of each."""
        listed = [
            {
                "code": written_code(code),
                "name": language_name(code),
                "targets": sorted(map(written_code, {code, *self._languages.targets_of(code)})),
            }
            for code in self._languages
        ]
        return JSONResponse(listed)

    async def health(self) -> Response:
        """Responds while the event loop runs; `/healthz` and `/readyz` also check the models."""
        return JSONResponse({"status": "ok"})

    async def frontend_settings(self) -> Response:
        """Returns the settings for pages."""
        targets = self._languages.targets
        target = "en" if "en" in targets else targets[0]
        settings = {
            "charLimit": self._limits()[1],
            "frontendTimeout": _FRONTEND_TIMEOUT_MS,
            "apiKeys": self._authenticator.has_keys,
            "keyRequired": self._authenticator.has_keys,
            "suggestions": self._corrections is not None,
            "filesTranslation": bool(self._files.formats),
            "supportedFilesFormat": self._files.formats,
            "language": {
                "source": {"code": AUTO, "name": "Auto Detect"},
                "target": {"code": written_code(target), "name": language_name(target)},
            },
        }
        return JSONResponse(settings)

    async def _read(self, reader: ParameterReader, request: Request) -> tuple[Parameters, float]:
        parameters, deadline_seconds = await reader.read(request)
        key = parameters.first("api_key")
        given = [f"Bearer {key}"] if isinstance(key, str) and key else request.headers.getlist("authorization")
        try:
            request.state.record.account = self._authenticator.check_key(*given)
        except UnauthorizedError as error:
            if key or "authorization" in request.headers:
                raise UnauthorizedError("Invalid API key") from error
            raise MissingKeyError("Please contact the server operator to get an API key") from error
        return parameters, deadline_seconds

    def _limits(self) -> tuple[int, int]:
        """Returns the most texts of a request, and the most characters of a text."""
        limits = self._models.text_limits
        return limits.max_texts, limits.max_text_characters


async def _translate_several(
    parts: Parts, texts: Sequence[SourceText], order: TranslateRequest, *, rows: int
) -> list[Translation | None]:
    several = order._replace(options=SearchFields(beam_size=rows, hypotheses=rows))
    translations = list[Translation | None]()
    for text in texts:
        try:
            translations += await translate_texts(parts, [text], several)
        except InvalidRequestError as error:
            if error.field != "options.hypotheses":
                raise
            # A text of several sentences has no alternatives.
            translations += await translate_texts(parts, [text], order)
    return translations


def _answer(
    wanted: TranslateParameters, translations: Sequence[Translation | None], detected: Sequence[DetectedLanguage]
) -> dict[str, Any]:
    texts = [
        text if translation is None else translation.text
        for text, translation in zip(wanted.texts, translations, strict=True)
    ]
    answer: dict[str, list[Any]] = {"translatedText": texts}
    if wanted.source == AUTO:
        answer["detectedLanguage"] = [_detection(language) for language in detected]
    if wanted.alternatives:
        answer["alternatives"] = [
            _distinct(text, translation) for text, translation in zip(texts, translations, strict=True)
        ]
    return answer if wanted.batch else {name: values[0] for name, values in answer.items()}


def _distinct(best: str, translation: Translation | None) -> list[str]:
    others = () if translation is None else translation.alternatives
    return [text for text in dict.fromkeys(other.text for other in others) if text != best]


def _detection(found: DetectedLanguage) -> dict[str, Any]:
    return {"confidence": round(_PERCENT * found.confidence, 1), "language": written_code(found.code)}
