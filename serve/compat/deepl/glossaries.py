"""DeepL's glossaries, versions 2 and 3, over the stored glossaries of the server."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.deepl.languages import written_code, written_time
from dragoman.serve.compat.deepl.request import checked_glossary_id, refuse, unsupported
from dragoman.serve.compat.served_languages import ServedLanguages
from dragoman.serve.edge.interface import Routes
from dragoman.serve.edge.parameters import Parameters, Receive
from dragoman.serve.errors import GlossaryNotFoundError
from dragoman.serve.glossaries.files import EntriesFormat
from dragoman.serve.glossaries.reader import GlossaryReader
from dragoman.serve.glossaries.store import (
    Dictionary,
    DictionarySummary,
    Glossaries,
    Glossary,
    GlossaryStore,
    check_dictionary_count,
)
from dragoman.serve.host.threads import GLOSSARIES as GLOSSARY_THREADS
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.protect.terms.entry import Entry, EntryError

T = TypeVar("T")

GLOSSARIES, PAIRS = "/glossaries", "/v2/glossary-language-pairs"
_TSV = "text/tab-separated-values"
_FORMATS: dict[str, EntriesFormat] = {"tsv": "tsv", "csv": "csv"}


class DeepLGlossaries:
    """Handlers of the routes of glossaries."""

    def __init__(
        self,
        store: GlossaryStore | None,
        files: GlossaryReader,
        languages: ServedLanguages,
        receive: Receive,
        receive_large: Receive,
    ) -> None:
        """Creates the handlers; `store` None: the server refuses glossaries before it reads a body."""
        self._store = store
        self._files = files
        self._languages = languages
        self._receive = receive
        self._receive_large = receive_large

    def routes(self) -> Routes:
        """Yields method, path and handler of each route."""
        one = f"{GLOSSARIES}/{{glossary_id}}"
        yield "GET", PAIRS, self.pairs
        yield "POST", f"/v2{GLOSSARIES}", self.create_one
        yield "GET", f"/v2{GLOSSARIES}", self.list_single
        yield "GET", f"/v2{one}", self.get_single
        yield "DELETE", f"/v2{one}", self.delete
        yield "GET", f"/v2{one}/entries", self.entries_text
        yield "POST", f"/v3{GLOSSARIES}", self.create
        yield "GET", f"/v3{GLOSSARIES}", self.list_all
        yield "GET", f"/v3{one}", self.get
        yield "PATCH", f"/v3{one}", self.change
        yield "DELETE", f"/v3{one}", self.delete
        yield "GET", f"/v3{one}/entries", self.entries
        yield "PUT", f"/v3{one}/dictionaries", self.put_dictionary
        yield "DELETE", f"/v3{one}/dictionaries", self.delete_dictionary

    async def pairs(self, request: Request) -> Response:
        """Lists the pairs of languages of glossaries."""
        await self._receive(request)
        pairs = [
            {"source_lang": source, "target_lang": target}
            for source in self._languages.sources
            for target in sorted(self._languages.targets_of(source))
        ]
        return JSONResponse({"supported_languages": pairs})

    async def create_one(self, request: Request) -> Response:
        """Creates a glossary for one pair of languages."""
        parameters, deadline_seconds = await self._read_large(request)
        values = {name: parameters.first(name) for name in ("source_lang", "target_lang", "entries", "entries_format")}
        dictionary = await self._dictionary(values, deadline_seconds)
        glossary = await self._use(request, lambda stored: stored.create(_name(parameters), [dictionary]))
        return JSONResponse(_single(glossary), HTTPStatus.CREATED)

    async def list_single(self, request: Request) -> Response:
        """Lists the glossaries for one pair of languages."""
        await self._read(request)
        found = await self._use(request, Glossaries.list_all)
        return JSONResponse({"glossaries": [_single(result) for result in found if len(result.dictionaries) == 1]})

    async def get_single(self, request: Request, glossary_id: str) -> Response:
        """Returns a glossary for one pair of languages, without its entries."""
        return JSONResponse(_single(await self._find_single(request, glossary_id)))

    async def entries_text(self, request: Request, glossary_id: str) -> Response:
        """Returns the entries of a glossary for one pair of languages, a line for each."""
        pair = (await self._find_single(request, glossary_id)).dictionaries[0].pair
        found = await self._use(request, lambda stored: stored.entries(glossary_id, *pair))
        return Response(_text(found), media_type=f"{_TSV}; charset=utf-8")

    async def create(self, request: Request) -> Response:
        """Creates a glossary with a dictionary per pair of languages."""
        parameters, deadline_seconds = await self._read_large(request)
        dictionaries = await self._dictionaries(parameters, deadline_seconds)
        if not dictionaries:
            raise refuse("Glossary dictionaries must be provided.")
        glossary = await self._use(request, lambda stored: stored.create(_name(parameters), dictionaries))
        return JSONResponse(_whole(glossary), HTTPStatus.CREATED)

    async def list_all(self, request: Request) -> Response:
        """Lists all glossaries without their entries."""
        await self._read(request)
        return JSONResponse({"glossaries": [_whole(item) for item in await self._use(request, Glossaries.list_all)]})

    async def get(self, request: Request, glossary_id: str) -> Response:
        """Returns a glossary without its entries."""
        return JSONResponse(_whole(await self._find(request, glossary_id)))

    async def change(self, request: Request, glossary_id: str) -> Response:
        """Renames a glossary, and adds or replaces entries of its dictionaries."""
        parameters, deadline_seconds = await self._read_large(request)
        dictionaries = await self._dictionaries(parameters, deadline_seconds)
        name = _name(parameters) if parameters.first("name") is not None else None
        glossary = await self._use(
            request, lambda stored: stored.change(checked_glossary_id(glossary_id), name, dictionaries)
        )
        return JSONResponse(_whole(glossary))

    async def delete(self, request: Request, glossary_id: str) -> Response:
        """Deletes a glossary with all its dictionaries."""
        await self._read(request)
        await self._use(request, lambda stored: stored.delete(checked_glossary_id(glossary_id)))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def entries(self, request: Request, glossary_id: str) -> Response:
        """Returns the entries of one dictionary."""
        pair = await self._pair(request)
        found = await self._use(request, lambda stored: stored.entries(checked_glossary_id(glossary_id), *pair))
        source, target = map(_code, pair)
        dictionary = {"source_lang": source, "target_lang": target, "entries": _text(found), "entries_format": "tsv"}
        return JSONResponse({"dictionaries": [dictionary]})

    async def put_dictionary(self, request: Request, glossary_id: str) -> Response:
        """Adds a dictionary, or replaces the one of the same languages."""
        parameters, deadline_seconds = await self._read_large(request)
        values = {name: parameters.first(name) for name in parameters.values}
        dictionary = await self._dictionary(values, deadline_seconds)
        glossary = await self._use(
            request, lambda stored: stored.put_dictionary(checked_glossary_id(glossary_id), dictionary)
        )
        return JSONResponse(next(_summary(item) for item in glossary.dictionaries if item.pair == dictionary.pair))

    async def delete_dictionary(self, request: Request, glossary_id: str) -> Response:
        """Deletes one dictionary."""
        pair = await self._pair(request)
        await self._use(request, lambda stored: stored.delete_dictionary(checked_glossary_id(glossary_id), *pair))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _find(self, request: Request, glossary_id: str) -> Glossary:
        await self._read(request)
        return await self._use(request, lambda stored: stored.get(checked_glossary_id(glossary_id)))

    async def _find_single(self, request: Request, glossary_id: str) -> Glossary:
        glossary = await self._find(request, glossary_id)
        if len(glossary.dictionaries) != 1:
            raise GlossaryNotFoundError(glossary_id)
        return glossary

    async def _pair(self, request: Request) -> tuple[str, str]:
        parameters = await self._read(request)
        return self._languages_of(parameters.first("source_lang"), parameters.first("target_lang"))

    def _enabled(self) -> GlossaryStore:
        if self._store is None:
            raise refuse("Glossaries are not supported by this server: it has no --state-dir.")
        return self._store

    async def _read(self, request: Request) -> Parameters:
        self._enabled()
        parameters, _ = await self._receive(request)
        return parameters

    async def _read_large(self, request: Request) -> tuple[Parameters, float]:
        """Returns the parameters and the deadline of a request that may have the size of a document."""
        self._enabled()
        return await self._receive_large(request)

    async def _use(self, request: Request, use: Callable[[Glossaries], T]) -> T:
        """Returns the result of a function of the client's glossaries, which runs in a thread."""
        store = self._enabled()
        record: RequestRecord = request.state.record
        try:
            return await GLOSSARY_THREADS.run(use, store.of(record.account_id, record.caller))
        except EntryError as error:
            raise _invalid_entry(error) from error

    async def _dictionaries(self, parameters: Parameters, deadline_seconds: float) -> list[Dictionary]:
        values = parameters.all("dictionaries")
        if not all(isinstance(value, dict) for value in values):
            raise unsupported("dictionaries")
        check_dictionary_count(len(values))
        return [await self._dictionary(value, deadline_seconds) for value in values if isinstance(value, dict)]

    async def _dictionary(self, values: dict[str, Any], deadline_seconds: float) -> Dictionary:
        pair = self._languages_of(values.get("source_lang"), values.get("target_lang"))
        entries, entries_format = values.get("entries"), values.get("entries_format")
        if not isinstance(entries, str) or not entries:
            raise refuse("Parameter 'entries' not specified.")
        if not isinstance(entries_format, str) or entries_format not in _FORMATS:
            raise unsupported("entries_format")
        try:
            found = await self._files.read(
                entries, _FORMATS[entries_format], *pair, deadline_seconds, first_targets=True
            )
        except EntryError as error:
            raise _invalid_entry(error) from error
        return Dictionary(*pair, found)

    def _languages_of(self, source: object, target: object) -> tuple[str, str]:
        found = [self._languages.find(item) if isinstance(item, str) else None for item in (source, target)]
        if None in found or found[0] == found[1]:
            raise refuse("Unsupported glossary source and target language pair.")
        return str(found[0]), str(found[1])


def _name(parameters: Parameters) -> str:
    name = parameters.first("name")
    if not isinstance(name, str) or not name:
        raise refuse("Parameter 'name' not specified.")
    return name


def _invalid_entry(error: EntryError) -> Exception:
    return refuse("Invalid glossary entries provided", detail=f"Key with the index {error.index}: {error.problem}")


def _text(entries: Sequence[Entry]) -> str:
    return "\n".join(f"{entry.source}\t{entry.targets[0]}" for entry in entries)


def _code(code: str) -> str:
    return written_code(code).lower()


def _summary(dictionary: DictionarySummary) -> dict[str, Any]:
    return {
        "source_lang": _code(dictionary.source_language),
        "target_lang": _code(dictionary.target_language),
        "entry_count": dictionary.entry_count,
    }


def _single(glossary: Glossary) -> dict[str, Any]:
    return {**_common(glossary), "ready": True, **_summary(glossary.dictionaries[0])}


def _whole(glossary: Glossary) -> dict[str, Any]:
    return {**_common(glossary), "dictionaries": [_summary(dictionary) for dictionary in glossary.dictionaries]}


def _common(glossary: Glossary) -> dict[str, Any]:
    created = written_time(glossary.created_seconds)
    return {"glossary_id": glossary.id, "name": glossary.name, "creation_time": created}
