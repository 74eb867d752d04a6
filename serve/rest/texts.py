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
from dragoman.serve.edge.bodies import AttentionBody, Body, BodyParser, DetectBody, ScoreBody, TranslateBody
from dragoman.serve.edge.events import TRANSLATION_EVENTS, EventStream
from dragoman.serve.edge.form_parser import media_type_of
from dragoman.serve.edge.large_answers import write_json
from dragoman.serve.edge.problems import TimedResponse
from dragoman.serve.edge.reader import RequestReader, record_of, unless_disconnected
from dragoman.serve.edge.route_table import Route, RouteGroup, described_by_name
from dragoman.serve.edge.schemas import JSON
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.rest.description import describe_texts
from dragoman.serve.rest.interface import ATTENTION_PATH, DETECT_PATH, SCORE_PATH, STREAM_PATH, TRANSLATE_PATH
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
        self, dispatcher: Dispatcher, direction: BundleDirection, reader: RequestReader, max_values: int
    ) -> None:
        """Creates the handlers of bodies up to `max_values` values; the documentation has examples of `direction`."""
        self._dispatcher = dispatcher
        self._direction = direction
        self._reader = reader
        self._translations = BodyParser(TranslateBody, max_values)
        self._scores = BodyParser(ScoreBody, max_values)
        self._attentions = BodyParser(AttentionBody, max_values)
        self._detections = BodyParser(DetectBody, max_values)

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
        body, deadline_seconds = await self._receive(request, self._scores)
        requested = ScoreRequest(**body, deadline_seconds=deadline_seconds)
        return await _answer(request, self._dispatcher.score(requested, record_of(request)), _SCORES)

    async def attend(self, request: Request) -> Response:
        """Reads the attention by forced decoding. The response has the numbers of `layers` and `heads`."""
        body, deadline_seconds = await self._receive(request, self._attentions)
        requested = AttentionRequest(**body, deadline_seconds=deadline_seconds)
        return await _answer(request, self._dispatcher.attend(requested, record_of(request)), _ATTENTIONS)

    async def detect(self, request: Request) -> Response:
        """Detects the language of each text independently of the others. Reads the start of long texts."""
        body, deadline_seconds = await self._receive(request, self._detections)
        response = await unless_disconnected(request, self._dispatcher.detect(body["text"], deadline_seconds))
        return Response(_DETECTIONS.dump_json(response), media_type=JSON)

    async def _receive_texts(self, request: Request) -> TranslateRequest:
        body, deadline_seconds = await self._receive(request, self._translations)
        return TranslateRequest(**body, deadline_seconds=deadline_seconds)

    async def _receive(self, request: Request, parser: BodyParser[Body]) -> tuple[Body, float]:
        """Returns the parsed body of a request, and its deadline on the monotonic clock."""
        content_type = request.headers.get("content-type", "")
        if content_type != JSON and media_type_of(content_type) != JSON:
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type: expected application/json")
        data, deadline_seconds = await self._reader.read(request)
        return await parser.parse(data, deadline_seconds), deadline_seconds


async def _answer(
    request: Request, work: Coroutine[Any, Any, AnyResponse], adapter: TypeAdapter[AnyResponse]
) -> Response:
    response = await unless_disconnected(request, work)
    return TimedResponse(await write_json(response, adapter), response.timings)
