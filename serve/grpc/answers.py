"""Writes the messages of answers: small ones at once, large ones in pieces between which the event loop runs."""

from collections.abc import Sequence
from dataclasses import replace

from dragoman.protos import translation_pb2
from dragoman.serve.edge.large_answers import LARGE_VALUES, count_values
from dragoman.serve.grpc import messages
from dragoman.serve.grpc.call import rich_status
from dragoman.serve.translation.large_work import Pace
from dragoman.serve.translation.response import ScoreResponse, Translation, TranslationDelta, TranslationResponse


async def write_translation_message(
    response: TranslationResponse, message: translation_pb2.TranslateResponse | None = None
) -> translation_pb2.TranslateResponse:
    """Returns the message of a response, a new one or an empty given one."""
    if count_values(response) <= LARGE_VALUES and response.targets is None:
        return messages.translate_response(response, message)
    message, pace = messages.translate_response(replace(response, translations=(), targets=None), message), Pace()
    await _add_translations(message, response.translations, pace)
    for target in response.targets or ():
        part = messages.target_message(replace(target, translations=(), error=None), message.targets.add())
        if target.error is not None:
            part.error.CopyFrom(rich_status(target.error, None))
        await _add_translations(part, target.translations, pace)
    return message


async def _add_translations(
    message: translation_pb2.TranslateResponse | translation_pb2.TargetTranslations,
    translations: Sequence[Translation],
    pace: Pace,
) -> None:
    for translation in translations:
        written = message.translations.add()
        written.MergeFrom(messages.translation_message(replace(translation, alternatives=())))
        await pace.keep()
        for alternative in translation.alternatives:
            written.alternatives.append(messages.alternative_message(alternative))
            await pace.keep()


async def write_stream_message(
    event: TranslationDelta | TranslationResponse,
) -> translation_pb2.TranslateStreamResponse:
    """Returns the message of one event of a stream."""
    if isinstance(event, TranslationResponse):
        return translation_pb2.TranslateStreamResponse(result=await write_translation_message(event))
    return translation_pb2.TranslateStreamResponse(delta=messages.delta_message(event))


async def write_score_message(response: ScoreResponse) -> translation_pb2.ScoreResponse:
    """Returns the message of a response."""
    if count_values(response) <= LARGE_VALUES:
        return messages.score_response(response)
    message, pace = messages.score_response(replace(response, scores=())), Pace()
    for score in response.scores:
        message.scores.append(messages.score_message(score))
        await pace.keep()
    return message
