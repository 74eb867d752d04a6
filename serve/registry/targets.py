"""Translates the texts of a request into several targets at once, each of which succeeds or fails by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from dragoman.serve.errors import InvalidRequestError, ServiceError
from dragoman.serve.observability.logs import HiddenErrors, RequestRecord
from dragoman.serve.observability.usage import RequestUsage, Timings
from dragoman.serve.registry.route import Offers, find_sources, served_code
from dragoman.serve.translation.fields import is_blank, shown
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import TargetError, TargetTranslations, TranslationResponse
from dragoman.serve.translation.shared_texts import SharedTexts

MAX_TARGETS = 16
_FIELD = "target_languages"

T = TypeVar("T")


def split_targets(request: TranslateRequest, offers: Offers) -> list[TranslateRequest]:
    """Returns the request of each target; raises InvalidRequestError if the targets are not a valid list."""
    targets = request.target_languages
    if request.target_language:
        raise InvalidRequestError(_FIELD, "expected none with target_language: name one target, or a list of targets")
    if len(targets) > MAX_TARGETS:
        raise InvalidRequestError(_FIELD, f"{len(targets)} languages, expected 1 to {MAX_TARGETS}")
    numbers = dict[str, int]()
    for number, target in enumerate(targets):
        if is_blank(target):
            raise InvalidRequestError(f"{_FIELD}[{number}]", "blank, expected an ISO 639-1 code")
        first = numbers.setdefault(served_code(target, offers) or target, number)
        if first != number:
            problem = f"{shown(target)}, expected another language than {_FIELD}[{first}]"
            raise InvalidRequestError(f"{_FIELD}[{number}]", problem)
    return [request._replace(target_language=target, target_languages=()) for target in targets]


async def translate_together(
    translate: Callable[[TranslateRequest, RequestRecord], Awaitable[T]],
    requests: Sequence[TranslateRequest],
    record: RequestRecord,
) -> list[T | ServiceError]:
    """Returns the translations of each request, or its error. The requests differ only in their targets.

    Args:
        translate: takes a request and the record of its target.
        record: receives the sum.
    """
    shared = SharedTexts([request.target_language for request in requests])
    records = [replace(record, usage=None, target_texts=None, direction="") for _ in requests]

    async def run(request: TranslateRequest, own: RequestRecord) -> T | ServiceError:
        try:
            with HiddenErrors(record.request_id):
                return await translate(request._replace(shared=shared), own)
        except ServiceError as error:
            return error

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run(*pair)) for pair in zip(requests, records, strict=True)]
    _add_up(record, records)
    return [task.result() for task in running]


def find_candidates(request: TranslateRequest, offers: Offers) -> tuple[str, ...]:
    """Returns the languages that the texts may have: a text has one language, whatever its target."""
    found = dict[str, None]()
    for target in request.shared.targets if request.shared else ():
        with suppress(ServiceError):
            code, sources = find_sources(request._replace(target_language=target), offers)
            found |= dict.fromkeys((*sources, code))
    return tuple(found)


def _add_up(record: RequestRecord, parts: Sequence[RequestRecord]) -> None:
    first = next((part for part in parts if part.usage is not None), parts[0])
    record.model, record.pivot_model, record.source_texts = first.model, first.pivot_model, first.source_texts
    record.direction = ",".join(part.direction for part in (record, *parts) if part.direction)
    usages = [part.usage for part in (record, *parts) if part.usage is not None]
    if usages:
        timings = Timings.longest([usage.timings for usage in usages])
        record.usage = RequestUsage.total(usages)._replace(timings=timings)
        record.target_texts = [text for part in (record, *parts) for text in part.target_texts or ()]


def join_targets(
    targets: Sequence[str], outcomes: Iterable[TranslationResponse | ServiceError]
) -> tuple[TranslationResponse, int]:
    """Returns the response to a request with several targets, and how many of them failed.

    Raises ServiceError of the first target if all failed.
    """
    found, timings, errors = list[TargetTranslations](), list[Timings](), list[ServiceError]()
    for number, (target, outcome) in enumerate(zip(targets, outcomes, strict=True)):
        if isinstance(outcome, ServiceError):
            errors.append(numbered(outcome, number))
            found.append(TargetTranslations(target, error=TargetError.of(errors[-1])))
            continue
        timings.append(outcome.timings)
        found.append(TargetTranslations(target, outcome.translations, outcome.model, outcome.pivot))
    if not timings:
        raise errors[0]
    return TranslationResponse((), Timings.longest(timings), targets=tuple(found)), len(errors)


def numbered(error: ServiceError, number: int) -> ServiceError:
    """Returns the error of a target, whose field has its number if it is the language."""
    if isinstance(error, InvalidRequestError) and error.field == "target_language":
        return InvalidRequestError(f"{_FIELD}[{number}]", error.problem)
    return error
