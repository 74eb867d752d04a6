"""One request over both interfaces, with gRPC responses in the form of REST for comparison."""

import json
from typing import Any, Literal, get_args

from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status.rpc_status import from_call

from dragoman.protos.translation_pb2 import (
    Alignment,
    Alternative,
    FinishReason,
    RepairWay,
    ScoreRequest,
    TermWay,
    TranslateRequest,
    Translation,
)
from tests.support.calls import details_of
from tests.support.live import LiveService

JSON = {"content-type": "application/json"}
Answer = dict[str, Any]
_Optional = Literal["seed", "cached", "low_confidence", "origin"]


def translate_over_both(live: LiveService, request: Answer) -> list[Answer]:
    """Returns the translations, after a comparison of both interfaces."""
    answer = live.post(request)
    assert answer.status_code == 200, answer.text
    translations: list[Answer] = answer.json()["translations"]
    assert [as_json(translation) for translation in live.call(TranslateRequest(**request)).translations] == translations
    return translations


def score_over_both(live: LiveService, request: Answer) -> list[Answer]:
    answer = live.post(request, path="/v1/score")
    assert answer.status_code == 200, answer.text
    scores: list[Answer] = answer.json()["scores"]
    assert [
        {
            "score": score.score,
            "tokens": _tokens(score),
            "source_tokens": score.source_tokens,
            "target_tokens": score.target_tokens,
            **({"cached": score.cached} if score.HasField("cached") else {}),
        }
        for score in live.call_score(ScoreRequest(**request)).scores
    ] == scores
    return scores


def stream_over_rest(live: LiveService, request: Answer) -> tuple[list[Answer], Answer]:
    content = live.post(request, path="/v1/translate/stream").text
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in content.split("\n\n") if block]
    *deltas, result = [json.loads(block["data"]) for block in blocks if "data" in block]
    return deltas, result


def refusal_of_both(live: LiveService, request: Answer, path: str = "/v1/translate") -> tuple[str, str]:
    """Returns the rejected field and the message, which both interfaces share; gRPC also has them in its details."""
    answer = live.post(content=json.dumps(request).encode(), headers=JSON, path=path)
    problem = answer.json()
    assert (answer.status_code, problem["reason"]) == (400, "invalid"), problem
    error: Any = live.call_error((ScoreRequest if path == "/v1/score" else TranslateRequest)(**request))
    assert error.code().name == "INVALID_ARGUMENT"
    assert error.details() == problem["detail"]
    details = details_of(from_call(error))
    (violation,) = details[BadRequest].field_violations
    field = problem["field"]
    assert violation.field == details[ErrorInfo].metadata["field"] == field
    assert f"{field}: {violation.description}" == problem["detail"]
    return field, problem["detail"]


def as_json(translation: Translation) -> Answer:
    answer = {
        **_alternative(translation),
        "source_tokens": translation.source_tokens,
        "alternatives": list(map(_alternative, translation.alternatives)),
        "sentences": translation.sentences,
        "cut_sentences": translation.cut_sentences,
    }
    optional: tuple[_Optional, ...] = get_args(_Optional)
    return answer | {name: getattr(translation, name) for name in optional if translation.HasField(name)}


def _alternative(found: Translation | Alternative) -> Answer:
    answer: Answer = {
        "text": found.text,
        "score": found.score,
        "normalized_score": found.normalized_score,
        "finish_reason": _word(FinishReason.Name(found.finish_reason), "FINISH_REASON_"),
        "target_tokens": found.target_tokens,
    }
    if found.tokens:
        answer["tokens"] = _tokens(found)
    if found.alignments:
        answer["alignments"] = [_alignment(alignment) for alignment in found.alignments]
    if found.repairs:
        answer["repairs"] = [
            {"placeholder": repair.placeholder, "way": _word(RepairWay.Name(repair.way), "REPAIR_WAY_")}
            for repair in found.repairs
        ]
    if isinstance(found, Translation) and found.suggestions:
        names = ("source", "target", "similarity", "memory")
        answer["suggestions"] = [{name: getattr(item, name) for name in names} for item in found.suggestions]
    if found.terms:
        answer["terms"] = [
            {"source": term.source, "target": term.target, "way": _word(TermWay.Name(term.way), "TERM_WAY_")}
            for term in found.terms
        ]
    return answer


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()


def _alignment(found: Alignment) -> Answer:
    return {
        "source": [{"start": span.start, "end": span.end} for span in found.source],
        "target": [{"start": span.start, "end": span.end} for span in found.target],
        "weights": [list(row.weights) for row in found.weights],
        "links": [{"source": link.source, "target": link.target} for link in found.links],
    }


def _tokens(scored: Any) -> list[Answer]:
    return [{"piece": token.piece, "log_probability": token.log_probability} for token in scored.tokens]
