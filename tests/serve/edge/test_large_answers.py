"""Large answers are written in pieces, and are the same as answers that are written at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from dragoman.serve.edge.large_answers import LARGE_VALUES, write_json
from dragoman.serve.grpc.answers import write_score_message, write_stream_message, write_translation_message
from dragoman.serve.grpc.messages import score_response, translate_response
from dragoman.serve.observability.usage import Timings
from dragoman.serve.protect.alignment import Alignment, Link, Span
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation.response import (
    Alternative,
    Pivot,
    ScoreResponse,
    TargetError,
    TargetTranslations,
    TokenScore,
    TranslationResponse,
    TranslationScore,
)
from tests.support.translators import made_translation

TIMINGS = Timings(0.1, 0.2, 1e-7, 12345678.9)
TRANSLATIONS, SCORES = TypeAdapter(TranslationResponse), TypeAdapter(ScoreResponse)
TOKENS = tuple(TokenScore(f'\u2581"{number}\n\u00e4', -number / 3) for number in range(LARGE_VALUES // 2))
UNITS = tuple(Span(unit, unit + 1) for unit in range(30))
ALIGNMENT = Alignment(UNITS, UNITS, tuple(tuple(column / 7 for column in range(30)) for _ in range(30)), (Link(1, 2),))
DETAILS = ((TOKENS, (ALIGNMENT, ALIGNMENT)), ((), None), (None, None))
ALTERNATIVES = tuple(
    Alternative(
        text=f"text {number}",
        score=-1.5,
        normalized_score=float(f"-1e-{number}"),
        finish_reason=FinishReason.EOS if number else FinishReason.LENGTH,
        target_tokens=number,
        tokens=tokens,
        alignments=alignments,
    )
    for number, (tokens, alignments) in enumerate(DETAILS)
)
DIFFERENT = {"tokens": TOKENS, "alternatives": ALTERNATIVES, "seed": 2**60, "cached": False}
TRANSLATION = made_translation('"\u00e4"', score=-0.1, normalized_score=-0.2, **DIFFERENT)
BARE = replace(TRANSLATION, tokens=None, alternatives=(), seed=None, cached=None)
LARGE = TranslationResponse((TRANSLATION, BARE, TRANSLATION), TIMINGS, "m", Pivot("fr", "p"))
TARGETS = (TargetTranslations("de", (TRANSLATION, BARE), "m", Pivot("fr", "p")), TargetTranslations("fr", (BARE,)))
REFUSED = TargetTranslations("x", error=TargetError(400, "d", "invalid", "text[0]"))
SEVERAL = TranslationResponse((), TIMINGS, targets=TARGETS)
RESPONSES = (LARGE, SEVERAL, TranslationResponse((BARE,), TIMINGS), TranslationResponse((), TIMINGS))
SCORE = TranslationScore(score=-1.0, tokens=TOKENS, source_tokens=3, target_tokens=2)
SCORE_RESPONSE = ScoreResponse((SCORE,) * 5, TIMINGS, "m")


@pytest.mark.parametrize("response", RESPONSES)
def test_pieces_of_a_translation_make_up_the_whole(response: TranslationResponse) -> None:
    whole = translate_response(response)
    refused = replace(response, targets=(*(response.targets or ()), REFUSED))
    for written in (response, refused):
        assert asyncio.run(write_json(written, TRANSLATIONS)) == TRANSLATIONS.dump_json(written, exclude_none=True)
    assert asyncio.run(write_translation_message(response)) == whole
    assert asyncio.run(write_stream_message(response)).result == whole


@pytest.mark.parametrize("response", [SCORE_RESPONSE, ScoreResponse((SCORE,), TIMINGS), ScoreResponse((), TIMINGS)])
def test_pieces_of_scores_make_up_the_whole(response: ScoreResponse) -> None:
    assert asyncio.run(write_json(response, SCORES)) == SCORES.dump_json(response, exclude_none=True)
    assert asyncio.run(write_score_message(response)) == score_response(response)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "write",
    [
        lambda: write_json(LARGE, TRANSLATIONS),
        lambda: write_json(SCORE_RESPONSE, SCORES),
        lambda: write_translation_message(LARGE),
        lambda: write_score_message(SCORE_RESPONSE),
    ],
    ids=["JSON", "JSON of scores", "message", "message of scores"],
)
async def test_the_event_loop_runs_between_the_pieces(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[], Awaitable[object]]
) -> None:
    monkeypatch.setattr("dragoman.serve.translation.large_work.STRETCH_SECONDS", 0)
    iterations = 0
    writing = asyncio.ensure_future(write())
    while not writing.done():
        await asyncio.sleep(0)
        iterations += 1
    assert iterations > 5
