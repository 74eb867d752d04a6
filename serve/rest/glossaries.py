"""REST routes of stored glossaries."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from pydantic import FailFast, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from dragoman.serve.edge.bodies import BodyParser, TermBody
from dragoman.serve.edge.problems import problem_documentation
from dragoman.serve.edge.reader import RequestReader
from dragoman.serve.edge.route_table import GLOSSARIES, Route, RouteGroup, described_by_name
from dragoman.serve.edge.schemas import TEXT, content_of, inlined_schema, json_body
from dragoman.serve.errors import GlossaryNotFoundError, InvalidRequestError
from dragoman.serve.glossaries.files import FORMATS, MEDIA_TYPES, EntriesFormat, write_entries
from dragoman.serve.glossaries.reader import GlossaryReader
from dragoman.serve.glossaries.store import Dictionary, Glossaries, Glossary, GlossaryStore, check_dictionary_count
from dragoman.serve.host.threads import GLOSSARIES as GLOSSARY_THREADS
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.protect.terms.entry import Entry, EntryError, check_entries
from dragoman.serve.translation.fields import Fields, shown

GLOSSARIES_PATH = "/v1/glossaries"
JSON = "json"
# Values of a body: about 30,000 entries as objects.
MAX_VALUES = 200_000

T = TypeVar("T")


class DictionaryBody(Fields):
    """The entries of a glossary for one pair of languages, as objects or as the text of a file."""

    source_language: str = Field(description="ISO 639-1 code of the terms.")
    target_language: str = Field(description="ISO 639-1 code of their translations.")
    entries: Annotated[list[TermBody], FailFast()] = Field([], description="Entries, unless they are in `text`.")
    text: str = Field("", description="Entries as the text of a file.")
    format: str = Field("tsv", description="Format of `text`: `tsv`, `csv` or `tbx`.")


class GlossaryBody(Fields):
    """A glossary."""

    name: str = Field(description="A name for people, of 1 to 1024 characters.")
    dictionaries: Annotated[list[DictionaryBody], FailFast()] = Field(
        description="One per pair of languages, at most 100."
    )


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of one dictionary."""

    entries: tuple[Entry, ...]


_GLOSSARY = TypeAdapter(Glossary)
_GLOSSARIES = TypeAdapter(dict[str, list[Glossary]])
_ENTRIES = TypeAdapter(Entries)


def _describe_routes() -> dict[str, dict[str, Any]]:
    body = json_body(inlined_schema(GlossaryBody))
    stored = {"response_model": Glossary, "responses": problem_documentation(), "openapi_extra": body}
    unknown = problem_documentation(InvalidRequestError, GlossaryNotFoundError)
    content = content_of(TEXT, MEDIA_TYPES.values())
    written = {**unknown, int(HTTPStatus.OK): {"description": "The entries.", "content": content}}
    found = {"response_model": Glossary, "responses": unknown}
    deleted = {"status_code": HTTPStatus.NO_CONTENT, "response_model": None, "responses": unknown}
    summary = "Returns the entries of a dictionary as JSON, TSV, CSV or TBX"
    return {
        "create": {"summary": "Stores a glossary", "status_code": HTTPStatus.CREATED, **stored},
        "list_all": {"summary": "Lists the stored glossaries", "response_model": dict[str, list[Glossary]]},
        "get": {"summary": "Returns a glossary without its entries", **found},
        "replace": {"summary": "Replaces name and dictionaries of a glossary", **stored},
        "delete": {"summary": "Deletes a glossary", **deleted},
        "entries": {"summary": summary, "response_model": Entries, "responses": written},
    }


class HttpGlossaries:
    """Handlers of the routes."""

    def __init__(self, store: GlossaryStore | None, reader: RequestReader, files: GlossaryReader) -> None:
        """Creates the handlers; without a store, there are no glossaries. `files` reads the texts of files."""
        self._store = store
        self._reader = reader
        self._files = files
        self._parser = BodyParser(GlossaryBody, MAX_VALUES)

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        path, one = GLOSSARIES_PATH, f"{GLOSSARIES_PATH}/{{glossary_id}}"
        routes = (
            Route("POST", path, self.create),
            Route("GET", path, self.list_all),
            Route("GET", one, self.get),
            Route("PUT", one, self.replace),
            Route("DELETE", one, self.delete),
            Route("GET", f"{one}/entries", self.entries),
        )
        return RouteGroup(routes, described_by_name(_describe_routes), GLOSSARIES)

    async def create(self, request: Request) -> Response:
        """Requires a state directory. All processes of the service serve the glossary at once."""
        name, dictionaries = await self._receive(request)
        glossary = await self._use(request, lambda stored: stored.create(name, dictionaries))
        return _answer(_GLOSSARY, glossary, HTTPStatus.CREATED)

    async def list_all(self, request: Request) -> Response:
        """Lists the oldest first: those of the API key, and those that were stored without one."""
        found = [] if self._store is None else await self._use(request, Glossaries.list_all)
        return _answer(_GLOSSARIES, {"glossaries": found})

    async def get(self, glossary_id: str, request: Request) -> Response:
        """Returns name, times, and the number of entries of each dictionary."""
        return _answer(_GLOSSARY, await self._use(request, lambda stored: stored.get(glossary_id)))

    async def replace(self, glossary_id: str, request: Request) -> Response:
        """Replaces all or nothing. Requests that run already use the dictionaries from before."""
        name, dictionaries = await self._receive(request)
        glossary = await self._use(request, lambda stored: stored.replace(glossary_id, name, dictionaries))
        return _answer(_GLOSSARY, glossary)

    async def delete(self, glossary_id: str, request: Request) -> Response:
        """Deletes the glossary with all its dictionaries."""
        await self._use(request, lambda stored: stored.delete(glossary_id))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def entries(
        self,
        glossary_id: str,
        request: Request,
        source_language: str = "",
        target_language: str = "",
        format: str = JSON,  # noqa: A002
    ) -> Response:
        """Returns the entries in the order of the glossary. Files have no mark for letter case."""
        kind = _entries_format(format) if format != JSON else None
        pair = source_language, target_language
        found = await self._use(request, lambda stored: stored.entries(glossary_id, *pair))
        if kind is None:
            return _answer(_ENTRIES, Entries(found))
        content = await GLOSSARY_THREADS.run(write_entries, found, kind, *pair)
        return Response(content, media_type=f"{MEDIA_TYPES[kind]}; charset=utf-8")

    async def _receive(self, request: Request) -> tuple[str, list[Dictionary]]:
        data, deadline_seconds = await self._reader.read(request)
        self._enabled()
        body = await self._parser.parse(data, deadline_seconds)
        check_dictionary_count(len(body.dictionaries))
        read = [
            await self._read(dictionary, f"dictionaries[{index}]", deadline_seconds)
            for index, dictionary in enumerate(body.dictionaries)
        ]
        return body.name, read

    async def _read(self, body: DictionaryBody, field: str, deadline_seconds: float) -> Dictionary:
        """Returns a dictionary with its entries; `field` is its name in errors."""
        if bool(body.entries) == bool(body.text):
            raise InvalidRequestError(field, "expected either entries or text")
        pair = body.source_language, body.target_language
        try:
            if body.text:
                entries = await self._files.read(body.text, _entries_format(body.format), *pair, deadline_seconds)
            else:
                entries = await GLOSSARY_THREADS.run(check_entries, (entry.entry for entry in body.entries))
        except EntryError as error:
            raise InvalidRequestError(f"{field}.entries[{error.index}]", error.problem) from error
        return Dictionary(*pair, entries)

    def _enabled(self) -> GlossaryStore:
        if self._store is None:
            raise InvalidRequestError("glossary", "expected a server with --state-dir")
        return self._store

    async def _use(self, request: Request, function: Callable[[Glossaries], T]) -> T:
        """Returns the result of a function of the client's glossaries, which runs in a thread."""
        record: RequestRecord = request.state.record
        return await GLOSSARY_THREADS.run(function, self._enabled().of(record.account_id, record.caller))


def _answer(adapter: TypeAdapter[T], value: T, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(adapter.dump_json(value), status, media_type="application/json")


def _entries_format(name: str) -> EntriesFormat:
    found = next((known_format for known_format in FORMATS if known_format == name), None)
    if found is None:
        raise InvalidRequestError("format", f"{shown(name)}, expected tsv, csv or tbx")
    return found
