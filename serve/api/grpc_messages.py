"""gRPC messages to values and back: the search options of a request, the answers of a response, and the models.

Called by `serve.api.grpc_api` only. Decides nothing.
"""

from collections.abc import Iterable
from dataclasses import asdict

from protos import translation_pb2
from serve.registry.model_description import ModelDescription, ModelState
from serve.search.hypothesis import FinishReason
from serve.translation.response import (
    Alternative,
    ScoreResponse,
    Timings,
    TokenScore,
    Translation,
    TranslationDelta,
    TranslationResponse,
)
from serve.translation.search_fields import SearchFields

_FINISH_REASONS = {
    None: translation_pb2.FINISH_REASON_UNSPECIFIED,
    FinishReason.EOS: translation_pb2.FINISH_REASON_EOS,
    FinishReason.LENGTH: translation_pb2.FINISH_REASON_LENGTH,
}
_MODEL_STATES = {
    ModelState.LOADING: translation_pb2.MODEL_STATE_LOADING,
    ModelState.READY: translation_pb2.MODEL_STATE_READY,
    ModelState.FAILED: translation_pb2.MODEL_STATE_FAILED,
}


def read_options(message: translation_pb2.SearchOptions) -> SearchFields:
    """Returns the options that a message sets; the two have the same names.

    Raises:
        InvalidRequestError: naming the first that is not valid.
    """
    set_fields = message.ListFields()
    return SearchFields.parse({field.name: list(value) if field.is_repeated else value for field, value in set_fields})


def translate_response(response: TranslationResponse) -> translation_pb2.TranslateResponse:
    """Returns the message of a response."""
    translations = map(_translation, response.translations)
    pivot = response.pivot
    return translation_pb2.TranslateResponse(
        translations=translations,
        timings=_timings(response.timings),
        model=response.model,
        pivot=None if pivot is None else translation_pb2.Pivot(language=pivot.language, model=pivot.model),
    )


def stream_response(event: TranslationDelta | TranslationResponse) -> translation_pb2.TranslateStreamResponse:
    """Returns the message of one event of a stream."""
    if isinstance(event, TranslationResponse):
        return translation_pb2.TranslateStreamResponse(result=translate_response(event))
    delta = translation_pb2.TranslationDelta(
        text_index=event.text_index,
        text=event.text,
        target_tokens=event.target_tokens,
        finish_reason=_FINISH_REASONS[event.finish_reason],
    )
    return translation_pb2.TranslateStreamResponse(delta=delta)


def score_response(response: ScoreResponse) -> translation_pb2.ScoreResponse:
    """Returns the message of a response."""
    scores = [
        translation_pb2.TranslationScore(
            score=each.score,
            tokens=_tokens(each.tokens),
            source_tokens=each.source_tokens,
            target_tokens=each.target_tokens,
            cached=each.cached,
        )
        for each in response.scores
    ]
    return translation_pb2.ScoreResponse(scores=scores, timings=_timings(response.timings), model=response.model)


def model_list(models: Iterable[ModelDescription]) -> translation_pb2.ListModelsResponse:
    """Returns the message of the models."""
    return translation_pb2.ListModelsResponse(models=map(model_message, models))


def model_message(model: ModelDescription) -> translation_pb2.Model:
    """Returns the message of a model."""
    return translation_pb2.Model(
        name=model.name,
        state=_MODEL_STATES[model.state],
        directions=[translation_pb2.Direction(**asdict(direction)) for direction in model.directions],
        precision=model.precision,
        alignments=model.alignments,
        manifest_sha256=model.manifest_sha256,
        limits=translation_pb2.ModelLimits(**asdict(model.limits)),
    )


def _translation(translation: Translation) -> translation_pb2.Translation:
    return translation_pb2.Translation(
        text=translation.text,
        score=translation.score,
        finish_reason=_FINISH_REASONS[translation.finish_reason],
        source_tokens=translation.source_tokens,
        target_tokens=translation.target_tokens,
        normalised_score=translation.normalised_score,
        alternatives=map(_alternative, translation.alternatives),
        tokens=_tokens(translation.tokens or ()),
        alignments=_alignments(translation),
        seed=translation.seed,
        cached=translation.cached,
        sentences=translation.sentences,
        cut_sentences=translation.cut_sentences,
    )


def _alternative(alternative: Alternative) -> translation_pb2.Alternative:
    return translation_pb2.Alternative(
        text=alternative.text,
        score=alternative.score,
        normalised_score=alternative.normalised_score,
        finish_reason=_FINISH_REASONS[alternative.finish_reason],
        target_tokens=alternative.target_tokens,
        tokens=_tokens(alternative.tokens or ()),
        alignments=_alignments(alternative),
    )


def _tokens(tokens: Iterable[TokenScore]) -> list[translation_pb2.TokenScore]:
    return [translation_pb2.TokenScore(piece=token.piece, log_probability=token.log_probability) for token in tokens]


def _alignments(found: Alternative) -> list[translation_pb2.AlignmentRow]:
    return [translation_pb2.AlignmentRow(weights=weights) for weights in found.alignments or ()]


def _timings(timings: Timings) -> translation_pb2.Timings:
    return translation_pb2.Timings(**timings.by_name)
