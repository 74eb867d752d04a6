"""Plain values to gRPC messages and back, for clients: the opposite of `serve.api.grpc_messages`.

The values are those that the service itself answers with. Used by both translation clients.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from protos import translation_pb2
from protos.translation_pb2 import ScoreRequest, TranslateRequest
from serve.clients.asking import Asking
from serve.search.hypothesis import FinishReason
from serve.translation.response import (
    Alternative,
    Pivot,
    ScoreResponse,
    Timings,
    TokenScore,
    Translation,
    TranslationDelta,
    TranslationResponse,
    TranslationScore,
)

Texts = str | Sequence[str]

_FINISH_REASONS = {
    translation_pb2.FINISH_REASON_EOS: FinishReason.EOS,
    translation_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
_ASKED = ("source_language", "target_language", "model", "allow_pivot", "split_sentences", "target_prefix")


def translate_request(texts: Texts, asking: Asking) -> TranslateRequest:
    """Returns the request for the translations of a text or several."""
    fields: dict[str, Any] = {name: value for name, value in asking.items() if name in _ASKED}
    if "options" in asking:
        # What is left out is the server's default, which may be newer than ours.
        fields["options"] = asking["options"].model_dump(exclude_unset=True)
    return TranslateRequest(text=[texts] if isinstance(texts, str) else texts, **fields)


def score_request(pairs: Iterable[tuple[str, str]], asking: Asking) -> ScoreRequest:
    """Returns the request for the scores of texts and their translations."""
    return ScoreRequest(
        pairs=[translation_pb2.TextPair(text=text, translation=translation) for text, translation in pairs],
        source_language=asking.get("source_language", ""),
        target_language=asking.get("target_language", ""),
        model=asking.get("model", ""),
    )


def read_translations(message: translation_pb2.TranslateResponse) -> TranslationResponse:
    """Returns the answer that a message holds."""
    pivot = Pivot(message.pivot.language, message.pivot.model) if message.HasField("pivot") else None
    return TranslationResponse(
        tuple(map(_translation, message.translations)), _timings(message.timings), message.model, pivot
    )


def read_event(message: translation_pb2.TranslateStreamResponse) -> TranslationDelta | TranslationResponse:
    """Returns the event of a stream that a message holds."""
    if message.HasField("result"):
        return read_translations(message.result)
    delta = message.delta
    return TranslationDelta(
        text_index=delta.text_index,
        text=delta.text,
        target_tokens=delta.target_tokens,
        finish_reason=_FINISH_REASONS.get(delta.finish_reason),
    )


def read_scores(message: translation_pb2.ScoreResponse) -> ScoreResponse:
    """Returns the answer that a message holds."""
    scores = tuple(
        TranslationScore(
            score=each.score,
            tokens=_tokens(each.tokens),
            source_tokens=each.source_tokens,
            target_tokens=each.target_tokens,
            cached=each.cached if each.HasField("cached") else None,
        )
        for each in message.scores
    )
    return ScoreResponse(scores, _timings(message.timings), message.model)


def _translation(message: translation_pb2.Translation) -> Translation:
    return Translation(
        **_found(message),
        source_tokens=message.source_tokens,
        alternatives=tuple(Alternative(**_found(each)) for each in message.alternatives),
        seed=message.seed if message.HasField("seed") else None,
        cached=message.cached if message.HasField("cached") else None,
        sentences=message.sentences,
        cut_sentences=message.cut_sentences,
    )


def _found(message: translation_pb2.Translation | translation_pb2.Alternative) -> dict[str, Any]:
    return {
        "text": message.text,
        "score": message.score,
        "normalised_score": message.normalised_score,
        "finish_reason": _FINISH_REASONS[message.finish_reason],
        "target_tokens": message.target_tokens,
        # Absent and empty look the same in a message.
        "tokens": _tokens(message.tokens) or None,
        "alignments": tuple(tuple(row.weights) for row in message.alignments) or None,
    }


def _tokens(messages: Iterable[translation_pb2.TokenScore]) -> tuple[TokenScore, ...]:
    return tuple(TokenScore(each.piece, each.log_probability) for each in messages)


def _timings(message: translation_pb2.Timings) -> Timings:
    return Timings(
        tokenize_seconds=message.tokenize_seconds,
        queue_seconds=message.queue_seconds,
        inference_seconds=message.inference_seconds,
        total_seconds=message.total_seconds,
    )
