"""Writes the messages of answers: small ones at once, large ones in pieces between which the event loop runs."""

from dataclasses import replace

from dragoman.protos import translation_pb2
from dragoman.serve.edge.large_answers import LARGE_VALUES, count_values
from dragoman.serve.grpc import messages
from dragoman.serve.translation.large_work import Pace
from dragoman.serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse


async def write_translation_message(
    response: TranslationResponse, message: translation_pb2.TranslateResponse | None = None
) -> translation_pb2.TranslateResponse:
    """Returns the message of a response, a new one or an empty given one."""
    if count_values(response) <= LARGE_VALUES:
        return messages.translate_response(response, message)
    message, pace = messages.translate_response(replace(response, translations=()), message), Pace()
    for translation in response.translations:
        written = message.translations.add()
        written.MergeFrom(messages.translation_message(replace(translation, alternatives=())))
        await pace.keep()
        for alternative in translation.alternatives:
            written.alternatives.append(messages.alternative_message(alternative))
            await pace.keep()
    return message


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
