"""Writes the messages of answers: small ones at once, large ones in pieces between which the event loop runs."""

from dataclasses import replace

from dragoman.protos import translation_pb2
from dragoman.serve.edge.large_answers import LARGE_VALUES, count_values
from dragoman.serve.grpc.messages import (
    alternative_message,
    delta_message,
    score_message,
    score_response,
    translate_response,
    translation_message,
)
from dragoman.serve.translation.large_work import Pace
from dragoman.serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse


async def write_translation_message(response: TranslationResponse) -> translation_pb2.TranslateResponse:
    """Returns the message of a response."""
    if count_values(response) <= LARGE_VALUES:
        return translate_response(response)
    message, pace = translate_response(replace(response, translations=())), Pace()
    for translation in response.translations:
        written = message.translations.add()
        written.MergeFrom(translation_message(replace(translation, alternatives=())))
        await pace.keep()
        for alternative in translation.alternatives:
            written.alternatives.append(alternative_message(alternative))
            await pace.keep()
    return message


async def write_stream_message(
    event: TranslationDelta | TranslationResponse,
) -> translation_pb2.TranslateStreamResponse:
    """Returns the message of one event of a stream."""
    if isinstance(event, TranslationResponse):
        return translation_pb2.TranslateStreamResponse(result=await write_translation_message(event))
    return translation_pb2.TranslateStreamResponse(delta=delta_message(event))


async def write_score_message(response: ScoreResponse) -> translation_pb2.ScoreResponse:
    """Returns the message of a response."""
    if count_values(response) <= LARGE_VALUES:
        return score_response(response)
    message, pace = score_response(replace(response, scores=())), Pace()
    for score in response.scores:
        message.scores.append(score_message(score))
        await pace.keep()
    return message
