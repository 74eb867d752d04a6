"""The routes of DeepL, and how this interface writes errors."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.deepl.documents import DeepLDocuments
from dragoman.serve.compat.deepl.glossaries import DeepLGlossaries
from dragoman.serve.compat.deepl.languages import (
    RESOURCES,
    list_features,
    list_resources,
    list_sources,
    list_targets,
    written_code,
    written_time,
)
from dragoman.serve.compat.deepl.request import (
    PARAMETERS,
    QUALITY,
    RefusedError,
    TranslateParameters,
    refuse,
    unserved,
    unsupported,
)
from dragoman.serve.compat.description import describe_route, group_routes
from dragoman.serve.compat.texts import CompatibleTexts
from dragoman.serve.documents_api.translator import DocumentParts
from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.form_parser import FORM, MULTIPART
from dragoman.serve.edge.interface import Interface, error_documentation, json_response
from dragoman.serve.edge.parameters import ParameterReader, Parameters
from dragoman.serve.edge.problems import error_headers
from dragoman.serve.edge.route_table import DEEPL, Route
from dragoman.serve.edge.schemas import JSON, TEXT, object_of
from dragoman.serve.errors import (
    DocumentNotReadyError,
    GlossaryNotFoundError,
    QuotaExceededError,
    ServiceError,
    UnauthorizedError,
)
from dragoman.serve.glossaries.reader import GlossaryReader
from dragoman.serve.glossaries.store import GlossaryStore
from dragoman.serve.keys.account import Account
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.mixed_texts import SourceText, with_languages
from dragoman.serve.translation.fields import DEFAULT_SEARCH, SearchFields
from dragoman.serve.translation.markup import PLAIN
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation
from dragoman.tables import read_table

_ROUTES: dict[str, dict[str, Any]] = read_table(__file__, "routes.yaml")["routes"]
_ROUTES["translate"]["parameters"] = PARAMETERS
_ROUTES["languages_by_resource"]["parameters"] = {"resource": {"type": "string", "enum": list(RESOURCES)}}
_ERRORS = error_documentation(
    object_of("message", message=TEXT, detail=TEXT),
    "A parameter is missing, unknown or invalid.",
    "The API key is missing or wrong.",
    {404: "The glossary or document is unknown.", 456: "The API key has used its characters."},
)
# The form of uploads; others are JSON or simple forms.
_UPLOAD = "upload"


def _describe(route: Route) -> dict[str, Any]:
    handler = route.handler.__name__
    media_types = (MULTIPART,) if handler == _UPLOAD else (JSON, FORM)
    return describe_route(_ROUTES[handler], route.method, _ERRORS, media_types)


KEY_SCHEME = "deepl-auth-key"
_BEAM_SIZE = 4
# The status has no registered meaning; DeepL's clients raise an error of their own for it.
_QUOTA_EXCEEDED = 456
# What clients take as no limit.
_NO_LIMIT = 1_000_000_000_000
_TRANSLATE = "/v2/translate"
# Paths of DeepL; the other paths below /v2 belong to the Open Inference Protocol.
_OWN_PATHS = ("/v2/document", "/v2/glossaries", "/v2/glossary-language-pairs", "/v2/write", "/v3")


class DeepLHttp(Interface):
    """The routes; its methods are the handlers."""

    reads_keys = True

    def __init__(
        self,
        dispatcher: Dispatcher,
        texts: CompatibleTexts,
        reader: ParameterReader,
        authenticator: Authenticator,
        *,
        glossaries: GlossaryStore | None,
        glossary_files: GlossaryReader,
        documents: DocumentParts,
        prefix: str,
    ) -> None:
        """Creates the interface.

        Args:
            authenticator: of keys in parameters and headers.
            glossaries: None: the server has no state directory.
            documents: their jobs; glossaries may be as large.
            prefix: before every path; empty: none.
        """
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._texts = texts
        self._languages = texts.languages
        self.methods = {f"{prefix}{_TRANSLATE}": "deepl"}
        self._receive = partial(self._read, reader)
        receive_large = partial(self._read, documents.reader)
        self._glossaries = DeepLGlossaries(glossaries, glossary_files, self._languages, self._receive, receive_large)
        self._documents = DeepLDocuments(documents, self._languages, self._receive, receive_large)
        self.routes = group_routes(prefix, self._routes(), _describe, DEEPL)
        self._paths = frozenset(f"{prefix}{path}" for path in (*_OWN_PATHS, *(path for _, path, _ in self._routes())))
        self._below = tuple(f"{path}/" for path in self._paths)

    def owns(self, path: str) -> bool:
        """Returns whether a path is one of DeepL's, also if this server lacks its function."""
        return path in self._paths or path.startswith(self._below)

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Returns the header that clients show in their errors."""
        return {"x-trace-id": request_id}

    def write_error(self, error: ServiceError, request_id: str) -> Response:  # noqa: ARG002 - it is in a header
        """Returns the response to a failed request."""
        if isinstance(error, UnauthorizedError):
            return JSONResponse({"message": "Authorization failure, check auth_key"}, HTTPStatus.FORBIDDEN)
        if isinstance(error, QuotaExceededError):
            return JSONResponse({"message": "Quota exceeded", "detail": str(error)}, _QUOTA_EXCEEDED)
        if isinstance(error, GlossaryNotFoundError):
            return JSONResponse({"message": "Glossary not found", "detail": str(error)}, HTTPStatus.NOT_FOUND)
        status = HTTPStatus.SERVICE_UNAVAILABLE if isinstance(error, DocumentNotReadyError) else error.http_status
        return JSONResponse({"message": str(error)}, status, error_headers(error))

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:  # noqa: ARG002 - as above
        """Returns the response to an HTTP error."""
        body = {"message": error.detail}
        if isinstance(error, RefusedError) and error.more:
            body["detail"] = error.more
        return JSONResponse(body, error.status_code, dict(error.headers or {}))

    def _routes(self) -> Iterator[tuple[str, str, Callable[..., Awaitable[object]]]]:
        for method in ("GET", "POST"):
            yield method, _TRANSLATE, self.translate
            yield method, "/v2/languages", self.languages
            yield method, "/v2/usage", self.usage
        yield "GET", "/v3/languages", self.languages_by_resource
        yield "GET", "/v3/languages/resources", self.resources
        yield from self._glossaries.routes()
        yield from self._documents.routes()

    async def translate(self, request: Request) -> Response:
        """Translates each text independently of the others."""
        parameters, deadline_seconds = await self._receive(request)
        wanted = TranslateParameters.parse(parameters, self._dispatcher.check_texts)
        source, target = self._languages.find_pair(wanted.source or None, wanted.target, unserved)
        markup = wanted.text_format != PLAIN
        found = await self._languages.languages_of(wanted.texts, source, target, deadline_seconds, markup=markup)
        texts = with_languages(wanted.texts, found)
        if wanted.source.upper() == wanted.target.upper():
            raise refuse("Source and target language are equal.")
        if (language := self._texts.unserved(texts, target)) is not None:
            pair = f"source_lang '{written_code(language)}', target_lang '{written_code(target)}'"
            raise refuse(f"Language pair not supported: {pair}.")
        order = TranslateRequest(
            target_language=target,
            options=self._search(wanted.model_type),
            split_sentences=wanted.split_sentences,
            context=wanted.context,
            # Without alignments, a server accepts the parameter without effect.
            preserve_formatting=wanted.preserve_formatting and self._texts.aligned,
            format=wanted.text_format,
            ignore_tags=wanted.tags.get("ignore_tags", ()),
            splitting_tags=wanted.tags.get("splitting_tags", ()),
            glossary=wanted.glossaries,
            non_splitting_tags=wanted.tags.get("non_splitting_tags", ()),
            deadline_seconds=deadline_seconds,
        )
        translations = await self._texts.translate(request, texts, order)
        answers = [_answer(wanted, *pair) for pair in zip(texts, translations, strict=True)]
        return json_response({"translations": answers})

    async def languages(self, request: Request) -> Response:
        """Lists source languages, or target languages with `type=target`."""
        parameters, _ = await self._receive(request)
        side = parameters.first("type") or "source"
        if side not in ("source", "target"):
            raise unsupported("type")
        return JSONResponse(list_sources(self._languages) if side == "source" else list_targets(self._languages))

    async def usage(self, request: Request) -> Response:
        """Returns the counted characters and their limit."""
        await self._receive(request)
        account: Account | None = request.state.record.account
        if account is None:
            return JSONResponse({"character_count": 0, "character_limit": _NO_LIMIT})
        used, start, end = await account.count_used()
        limit = account.key.limits.characters
        answer: dict[str, object] = {"character_count": used, "character_limit": _NO_LIMIT if limit is None else limit}
        if end is not None:
            answer |= {"start_time": written_time(start), "end_time": written_time(end)}
        return JSONResponse(answer)

    async def languages_by_resource(self, request: Request) -> Response:
        """Lists the languages of a resource with their features."""
        parameters, _ = await self._receive(request)
        resource = parameters.first("resource")
        if resource is None:
            raise refuse("Parameter 'resource' not specified.")
        if not isinstance(resource, str) or resource not in RESOURCES:
            raise unsupported("resource")
        return JSONResponse(list(list_features(self._languages, resource)))

    async def resources(self, request: Request) -> Response:
        """Lists the resources with their features."""
        await self._receive(request)
        return JSONResponse(list_resources())

    async def _read(self, reader: ParameterReader, request: Request) -> tuple[Parameters, float]:
        parameters, deadline_seconds = await reader.read(request)
        headers, key = request.headers.getlist("authorization"), parameters.first("auth_key")
        if not headers and isinstance(key, str):
            headers = [f"Bearer {key}"]
        request.state.record.account = self._authenticator.check_key(*map(_as_bearer, headers))
        return parameters, deadline_seconds

    def _search(self, model_type: str) -> SearchFields:
        """Returns a wide search for quality, as far as it fits into the slots of each model."""
        if model_type not in QUALITY:
            return DEFAULT_SEARCH
        return SearchFields(beam_size=min(_BEAM_SIZE, self._texts.slots))


def _as_bearer(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    return f"Bearer {key}" if scheme.lower() == KEY_SCHEME else authorization


def _answer(wanted: TranslateParameters, source: SourceText, translation: Translation | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "detected_source_language": written_code(source.language),
        "text": source.text if translation is None else translation.text,
        "billed_characters": len(source.text),
    }
    if wanted.model_type:
        answer["model_type_used"] = wanted.model_type.removeprefix("prefer_")
    if wanted.version:
        answer["tag_handling_version"] = wanted.version
    return answer
