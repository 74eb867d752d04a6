"""The routes of texts: translation, streams, scores, attention and detection."""

from collections.abc import Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.edge.bodies import AttentionBody, Body, DetectBody, ScoreBody, TranslateBody
from dragoman.serve.edge.body_parser import BodyParser
from dragoman.serve.edge.events import TRANSLATION_EVENTS, EventStream
from dragoman.serve.edge.form_parser import media_type_of
from dragoman.serve.edge.large_answers import write_json
from dragoman.serve.edge.problems import TimedResponse
from dragoman.serve.edge.reader import RequestReader, unless_disconnected
from dragoman.serve.edge.route_table import Route, RouteGroup, described_by_name
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.rest.description import describe_texts
from dragoman.serve.rest.interface import ATTENTION_PATH, DETECT_PATH, SCORE_PATH, STREAM_PATH, TRANSLATE_PATH
from dragoman.serve.rest.recorder import record_of
from dragoman.serve.translation.attention import AttentionRequest, AttentionResponse
from dragoman.serve.translation.detection import DetectResponse
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest
from dragoman.serve.translation.response import ScoreResponse, TranslationResponse

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse, AttentionResponse)

_TRANSLATIONS = TypeAdapter(TranslationResponse)
_SCORES = TypeAdapter(ScoreResponse)
_ATTENTIONS = TypeAdapter(AttentionResponse)
_DETECTIONS = TypeAdapter(DetectResponse)


class HttpTexts:
    """Handlers of the routes that translate, score and detect."""

    def __init__(
        self, dispatcher: Dispatcher, direction: BundleDirection, reader: RequestReader, parser: BodyParser
    ) -> None:
        """Creates the handlers; the documentation has examples of `direction`."""
        self._dispatcher = dispatcher
        self._direction = direction
        self._reader = reader
        self._parser = parser

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        routes = (
            Route("POST", TRANSLATE_PATH, self.translate),
            Route("POST", STREAM_PATH, self.translate_stream),
            Route("POST", SCORE_PATH, self.score),
            Route("POST", ATTENTION_PATH, self.attend),
            Route("POST", DETECT_PATH, self.detect),
        )
        return RouteGroup(routes, described_by_name(partial(describe_texts, self._direction)))

    async def translate(self, request: Request) -> Response:
        """Translates each text independently of the others."""
        requested = await self._receive_texts(request)
        return await _answer(request, self._dispatcher.translate(requested, record_of(request)), _TRANSLATIONS)

    async def translate_stream(self, request: Request) -> Response:
        """The deltas of a text, in order, form its translation. The last event holds what `/v1/translate` returns.

        With `beam_size` or `hypotheses` above 1, a translation is one delta. An error before the first event sets the
        HTTP status; a later error is an event.
        """
        requested = await self._receive_texts(request)
        return await EventStream.begin(
            request, self._dispatcher.stream(requested, record_of(request)), TRANSLATION_EVENTS
        )

    async def score(self, request: Request) -> Response:
        """Scores each translation by forced decoding."""
        body, deadline_seconds = await self._receive(request, ScoreBody)
        requested = ScoreRequest(**{**vars(body), "pairs": body.texts}, deadline_seconds=deadline_seconds)
        return await _answer(request, self._dispatcher.score(requested, record_of(request)), _SCORES)

    async def attend(self, request: Request) -> Response:
        """Reads the attention by forced decoding. The response has the numbers of `layers` and `heads`."""
        body, deadline_seconds = await self._receive(request, AttentionBody)
        requested = AttentionRequest(**{**vars(body), "pairs": body.texts}, deadline_seconds=deadline_seconds)
        return await _answer(request, self._dispatcher.attend(requested, record_of(request)), _ATTENTIONS)

    async def detect(self, request: Request) -> Response:
        """Detects the language of each text independently of the others. Reads the start of long texts."""
        body, deadline_seconds = await self._receive(request, DetectBody)
        response = await unless_disconnected(request, self._dispatcher.detect(body.text, deadline_seconds))
        return Response(_DETECTIONS.dump_json(response), media_type="application/json")

    async def _receive_texts(self, request: Request) -> TranslateRequest:
        body, deadline_seconds = await self._receive(request, TranslateBody)
        fields = {**vars(body), "terms": [term.entry for term in body.terms]}
        return TranslateRequest(**fields, deadline_seconds=deadline_seconds)

    async def _receive(self, request: Request, kind: type[Body]) -> tuple[Body, float]:
        """Returns the parsed body of a request, and its deadline on the monotonic clock."""
        _check_content_type(request)
        data, deadline_seconds = await self._reader.read(request)
        return await self._parser.parse(data, kind, deadline_seconds), deadline_seconds


def _check_content_type(request: Request) -> None:
    media_type = media_type_of(request.headers.get("content-type", ""))
    if media_type != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type: expected application/json")


async def _answer(
    request: Request, work: Coroutine[Any, Any, AnyResponse], adapter: TypeAdapter[AnyResponse]
) -> Response:
    response = await unless_disconnected(request, work)
    return TimedResponse(await write_json(response, adapter), response.timings)
