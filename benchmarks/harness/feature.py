"""What the benchmarks of single features share: options, requests to a service in this process, and the output."""

import argparse
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tabulate import tabulate

from dragoman.serve.app import open_dispatcher
from dragoman.serve.observability.logs import RequestRecord, configure_logs
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationResponse

# Texts of one request.
MAX_TEXTS = 32


def options_of(document: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the first sentence of a document as description, and the folder of the data."""
    parser = argparse.ArgumentParser(description=str(document).partition("\n")[0])
    parser.add_argument("--multi30k-folder", type=Path)
    return parser


def service_options_of(document: str | None) -> argparse.ArgumentParser:
    """Returns the same with the bundle to serve and the data to translate."""
    parser = options_of(document)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", default="multi30k:en-de")
    return parser


@asynccontextmanager
async def open_service(bundle: Path) -> AsyncIterator[Dispatcher]:
    """Serves a bundle in this process until the block ends."""
    configure_logs("console")
    async with open_dispatcher(ServeSettings(bundle=bundle)) as dispatcher:
        yield dispatcher


async def translate(
    dispatcher: Dispatcher, texts: Iterable[str], languages: tuple[str, str], **fields: Any
) -> TranslationResponse:
    """Returns the response to a request with further fields."""
    source, target = languages
    request = TranslateRequest(text=tuple(texts), source_language=source, target_language=target, **fields)
    return await dispatcher.translate(request, RequestRecord("local"))


async def translate_all(
    dispatcher: Dispatcher, texts: Sequence[str], languages: tuple[str, str], **fields: Any
) -> list[Translation]:
    """Returns the translations of any number of texts."""
    translations = list[Translation]()
    for first in range(0, len(texts), MAX_TEXTS):
        part = texts[first : first + MAX_TEXTS]
        translations += (await translate(dispatcher, part, languages, **fields)).translations
    return translations


def show(outcomes: Sequence[Mapping[str, Any]], formats: Mapping[str, str]) -> None:
    """Prints a table with a row per outcome, and a line of JSON; `formats` has those of some columns."""
    rows = [{name: formats.get(name, "{}").format(value) for name, value in outcome.items()} for outcome in outcomes]
    print(tabulate(rows, headers="keys", disable_numparse=True))
    print(json.dumps(list(outcomes)))
