"""REST routes of memories and corrections."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from dragoman.serve.documents.pairs import FORMATS, MEDIA_TYPES, READ, PairsFormat, write_pairs
from dragoman.serve.edge.bodies import BodyParser
from dragoman.serve.edge.interface import json_response
from dragoman.serve.edge.problems import problem_documentation
from dragoman.serve.edge.reader import RequestReader, record_of
from dragoman.serve.edge.route_table import MEMORIES, Route, RouteGroup
from dragoman.serve.edge.schemas import TEXT, content_of, inlined_schema, json_body
from dragoman.serve.errors import ForbiddenError, InvalidRequestError, MemoryNotFoundError
from dragoman.serve.host.threads import MEMORIES as MEMORY_THREADS
from dragoman.serve.memory.corrections import Correction, CorrectionStore
from dragoman.serve.memory.entry import Client, Entry, Pair
from dragoman.serve.memory.store import MemoryStore, Wanted
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.sandbox.worker import MEBIBYTE, Limits, Refusal
from dragoman.serve.translation.fields import Fields, shown

MEMORIES_PATH, CORRECTIONS_PATH = "/v1/memories", "/v1/corrections"
# Mebibytes, and bytes per byte of a file: it is in memory as its bytes, as frames and as texts.
_MEMORY, _OUTPUT = (28, 6), (1, 4)
# Entries of one answer, about 10 MB.
MAX_EXPORTED = 100_000
_NUMBER = re.compile(r"[0-9]{1,18}")
# PostgreSQL has ids of 32 bits.
_MAX_NUMBER = (1 << 31) - 1

T = TypeVar("T")


class CorrectionBody(Fields):
    """A correction of a translation."""

    source: str = Field(description="The text that was translated.")
    target: str = Field(description="What its translation should be.")
    source_language: str = Field(description="ISO 639-1 code of the text.")
    target_language: str = Field(description="ISO 639-1 code of its translation.")
    translation: str = Field("", description="The translation of the model; empty: unknown.")
    context: str = Field("", description="Where the text occurs.")
    memory: str = Field("", description="Name of the memory; empty: that of the server.")


class HttpMemories:
    """Handlers of the routes; without a store, they refuse. `readers` read corrections, and files of pairs."""

    def __init__(
        self,
        store: MemoryStore | None,
        corrections: CorrectionStore | None,
        sandbox: Sandbox,
        readers: tuple[RequestReader, RequestReader],
    ) -> None:
        self._store = store
        self._correction_store = corrections
        self._sandbox = sandbox
        self._reader, self._file_reader = readers
        self._parser = BodyParser(CorrectionBody, len(CorrectionBody.model_fields) + 1)

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        one = f"{MEMORIES_PATH}/{{name}}"
        entries, correction = f"{one}/entries", f"{CORRECTIONS_PATH}/{{correction_id}}"
        routes = (
            Route("GET", MEMORIES_PATH, self.list_memories),
            Route("DELETE", one, self.delete_memory),
            Route("POST", entries, self.add_entries),
            Route("GET", entries, self.get_entries),
            Route("DELETE", entries, self.delete_entries),
            Route("POST", CORRECTIONS_PATH, self.correct),
            Route("GET", CORRECTIONS_PATH, self.list_corrections),
            Route("GET", f"{CORRECTIONS_PATH}/terms", self.propose_terms),
            Route("POST", f"{correction}/approve", self.approve_correction),
            Route("DELETE", correction, self.delete_correction),
        )
        return RouteGroup(routes, _describe, MEMORIES)

    async def list_memories(self, request: Request) -> Response:
        """Lists the memories of the API key, and shared ones, with their versions and numbers of entries."""
        found = await _call(request, self._memories.list_all)
        return json_response({"memories": [memory._asdict() for memory in found]})

    async def delete_memory(self, name: str, request: Request) -> Response:
        """Deletes a memory with all its entries."""
        return json_response({"deleted": await _call(request, self._memories.delete, name)})

    async def add_entries(self, name: str, request: Request) -> Response:
        """Adds the pairs of a file to a memory.

        The body is the file. The memory is that of the API key, or a shared one with `shared=true`. It is made if it is
        missing. Pairs that it has are not added again.
        """
        given = request.query_params
        kind, shared = _format_of(given.get("format", "tsv")), given.get("shared") == "true"
        pair = Pair(given.get("source_language", ""), given.get("target_language", ""))
        data, deadline_seconds = await self._file_reader.read(request)
        store = self._memories
        memory_bytes, output_bytes = (base * MEBIBYTE + factor * len(data) for base, factor in (_MEMORY, _OUTPUT))
        limits = Limits.of_input(len(data), memory_bytes=memory_bytes, output_bytes=output_bytes, base_seconds=5)
        read = partial(self._sandbox.call, READ, (kind, *pair, data), purpose="memory", limits=limits)
        try:
            entries = await read(convert=lambda item: Entry(*item), deadline_seconds=deadline_seconds)
        except Refusal as refusal:
            raise InvalidRequestError("body", *refusal.args) from refusal
        added = await _call(request, store.add, name, pair, entries, shared=shared)
        return json_response({"added": added})

    async def get_entries(self, name: str, request: Request) -> Response:
        """Returns entries of a memory in the order of their ids, as JSON, TMX or TSV.

        A file needs both languages. Only keys that may approve see the authors of a shared memory.
        """
        given, wanted = request.query_params, _wanted(request)
        first, most = _number(given, "after", 0), min(MAX_EXPORTED, _number(given, "limit", 1000))
        name_of_format = given.get("format", "json")
        kind = None if name_of_format == "json" else _format_of(name_of_format)
        pair = Pair(wanted.source_language or "", wanted.target_language or "")
        if kind is not None and not all(pair):
            raise InvalidRequestError("source_language", "expected both languages of a file")
        found = await _call(request, self._memories.entries, name, wanted, after=first, limit=most)
        if kind is None:
            return json_response({"entries": [row._asdict() for row in found]})
        texts = (Entry(row.source, row.target, row.context) for row in found)
        content = await MEMORY_THREADS.run("".join, write_pairs(texts, kind, pair))
        return Response(content, media_type=f"{MEDIA_TYPES[kind]}; charset=utf-8")

    async def delete_entries(self, name: str, request: Request) -> Response:
        """Deletes the entries of languages, an origin, an author, or before a Unix time; without any of them, all."""
        return json_response({"deleted": await _call(request, self._memories.delete, name, _wanted(request))})

    async def correct(self, request: Request) -> Response:
        """Stores a correction of a translation, which changes no translation before it is approved."""
        data, deadline_seconds = await self._reader.read(request)
        body = await self._parser.parse(data, deadline_seconds)
        pair, entry = Pair(body.source_language, body.target_language), Entry(body.source, body.target, body.context)
        correction = Correction(pair, entry, body.translation, body.memory)
        added = await _call(request, self._corrections.add, correction)
        return json_response({"id": added}, HTTPStatus.CREATED)

    async def list_corrections(self, request: Request) -> Response:
        """Lists corrections that wait, the oldest first: those of the client, or all if its API key may approve."""
        after = _number(request.query_params, "after", 0)
        found = await _call(request, self._corrections.list_all, after=after)
        return json_response({"corrections": [row._asdict() for row in found]})

    async def propose_terms(self, request: Request) -> Response:
        """Proposes entries of glossaries: what three corrections replace alike; requires a key that may approve."""
        return json_response({"terms": await _call(request, self._corrections.terms)})

    async def approve_correction(self, correction_id: str, request: Request) -> Response:
        """Makes a correction an entry of its memory; requires an API key that may approve."""
        return json_response({"approved": await _call(request, self._corrections.approve, _ids(correction_id))})

    async def delete_correction(self, correction_id: str, request: Request) -> Response:
        """Deletes a correction of the client, or any if its API key may approve."""
        return json_response({"deleted": await _call(request, self._corrections.delete, _ids(correction_id))})

    @property
    def _memories(self) -> MemoryStore:
        if self._store is None:
            raise InvalidRequestError("memory", "expected a server with --state-dir")
        return self._store

    @property
    def _corrections(self) -> CorrectionStore:
        if self._correction_store is None:
            raise ForbiddenError("corrections: expected a server with --corrections")
        return self._correction_store


async def _call(request: Request, method: Callable[..., T], *arguments: object, **options: object) -> T:
    """Returns the result of a method of a store for the client of a request, which runs in a thread."""
    record = record_of(request)
    client = Client(record.account_id, record.caller, record.approves)
    return await MEMORY_THREADS.run(method, client, *arguments, **options)


def _format_of(name: str) -> PairsFormat:
    if (found := {str(known): known for known in FORMATS}.get(name)) is None:
        raise InvalidRequestError("format", f"{shown(name)}, expected {', '.join(FORMATS)}")
    return found


def _wanted(request: Request) -> Wanted:
    given = request.query_params
    before_seconds = float(_number(given, "before_seconds", 0)) if "before_seconds" in given else None
    for field in Wanted._fields[:-1]:
        if not given.get(field, "").isprintable():
            raise InvalidRequestError(field, "expected printable characters")
    source_language, target_language, origin, author = map(given.get, Wanted._fields[:-1])
    return Wanted(source_language, target_language, origin, author, before_seconds)


def _number(given: Mapping[str, str], field: str, default: int) -> int:
    text = given.get(field, str(default))
    if not _NUMBER.fullmatch(text) or int(text) > _MAX_NUMBER:
        raise InvalidRequestError(field, f"{shown(text)}, expected a number from 0 to {_MAX_NUMBER}")
    return int(text)


def _ids(text: str) -> list[int]:
    return [_number({"correction_id": text}, "correction_id", 0)]


_ENTRIES = "source_language target_language origin author before_seconds"
# The parameters of queries, by handler.
_PARAMETERS = {
    "add_entries": "source_language target_language format shared",
    "get_entries": f"{_ENTRIES} format after limit",
    "delete_entries": _ENTRIES,
    "list_corrections": "after",
}


def _describe(route: Route) -> dict[str, Any]:
    name, text = route.handler.__name__, route.handler.__doc__ or ""
    parameters = _PARAMETERS.get(name, "").split()
    more: dict[str, Any] = {"parameters": [{"name": item, "in": "query", "schema": TEXT} for item in parameters]}
    if name == "add_entries":
        more["requestBody"] = {"content": content_of(TEXT, MEDIA_TYPES.values())}
    if name == "correct":
        more |= json_body(inlined_schema(CorrectionBody))
    failures = problem_documentation(InvalidRequestError, MemoryNotFoundError, ForbiddenError)
    created = {"status_code": HTTPStatus.CREATED} if name == "correct" else {}
    return {"summary": re.split("[.;:]", text)[0], "responses": failures, "openapi_extra": more, **created}
