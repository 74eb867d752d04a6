"""Every search option at its limits and beyond, and every invalid combination, over both interfaces."""

import json
import math
from typing import Any

import pytest

from dragoman.protos.translation_pb2 import SearchOptions
from dragoman.serve.translation.fields import SearchFields
from tests.support.cases import cases
from tests.support.fake_bundles import MAX_TARGET_TOKENS
from tests.support.fakes import EOS_ID, VOCABULARY
from tests.support.live import LiveService
from tests.support.wire import JSON, refusal_of_both, translate_over_both

CASES = cases(__file__)

TEXT = {"text": ["ab ba"]}
Options = dict[str, Any]

# Slots and queue limit of `letters_live`.
SLOTS = 8
MIN_POSITIVE = 5e-324
UNREAL = (math.nan, math.inf, -math.inf)
NONE: Options = {}
SAMPLED: Options = {"temperature": 1.0, "seed": 0}
BEAM: Options = {"beam_size": 2}
NAMES = set(SearchFields.model_fields)

# Per option: the options that it requires, its values at the limits, and its values beyond.
LIMITS: dict[str, tuple[Options, tuple[Any, ...], tuple[Any, ...]]] = {
    "temperature": (NONE, (0.0,), (-MIN_POSITIVE, 100.1, *UNREAL)),
    "beam_size": (NONE, (1, SLOTS), (0, SLOTS + 1, 1001, 2**32 - 1)),
    "patience": (BEAM, (MIN_POSITIVE, 10.0), (0.0, 10.5, *UNREAL)),
    "hypotheses": (SAMPLED, (1, SLOTS), (0, SLOTS + 1, 1001)),
    "length_penalty": (BEAM, (0.0, 10.0), (-0.1, 10.1, *UNREAL)),
    "coverage_penalty": (BEAM, (0.0, 10.0), (-0.1, 1e308, *UNREAL)),
    "top_k": (SAMPLED, (0, 1_000_000), (1_000_001,)),
    "top_p": (SAMPLED, (MIN_POSITIVE, 1.0), (0.0, 1.5, *UNREAL)),
    "seed": ({"temperature": 1.0}, (0, 2**64 - 1), ()),
    "max_target_tokens": (NONE, (1, MAX_TARGET_TOKENS), (0, MAX_TARGET_TOKENS + 1, 2**32 - 1)),
    "min_target_tokens": (NONE, (0, MAX_TARGET_TOKENS), (MAX_TARGET_TOKENS + 1,)),
    "max_target_ratio": (NONE, (MIN_POSITIVE, 100.0), (0.0, 101.0, *UNREAL)),
    "min_target_ratio": (NONE, (0.0, 100.0), (-1.0, 101.0, *UNREAL)),
    "repetition_penalty": (NONE, (0.1, 10.0), (0.05, 10.5, *UNREAL)),
    "no_repeat_ngram_tokens": (NONE, (0, 1000), (1001,)),
    "suppressed_tokens": (NONE, ([], ["ab"] * 64), (["a"] * 65,)),
    "suppress_unknown": (NONE, (True, False), ()),
    "token_scores": (NONE, (True, False), ()),
    "alignments": (NONE, ("words", "tokens"), ("", "word", "Tokens")),
    "shortlist": (NONE, (False,), (True,)),  # the model has none
}
SERVED = [
    *({**others, name: value} for name, (others, served, _) in LIMITS.items() for value in served),
    {"temperature": MIN_POSITIVE, "seed": 1},
    {"temperature": 100.0, "seed": 1},
    {"beam_size": SLOTS, "hypotheses": SLOTS},
    {"beam_size": 4, "patience": 0.5, "hypotheses": 2},
    {"min_target_tokens": 3, "max_target_tokens": 3},
    {"min_target_ratio": 0.5, "max_target_ratio": 0.5},
]
# The last option is the one that is rejected.
REFUSED = [
    *({**others, name: value} for name, (others, _, refused) in LIMITS.items() for value in refused),
    *({"temperature": 1.0, "beam_size": 2}, {"patience": 2.0}, {"hypotheses": 2}, {"beam_size": 3, "hypotheses": 4}),
    *({"beam_size": 4, "patience": 0.5, "hypotheses": 3}, {"top_k": 5}, {"top_p": 0.5}, {"seed": 0}),
    {"max_target_tokens": 4, "min_target_tokens": 5},
    {"max_target_ratio": 0.5, "min_target_ratio": 0.6},
]

# Values in JSON that protobuf cannot express, per option.
WRONG_JSON = CASES["json of the wrong type is refused by name"]


def test_both_interfaces_have_the_same_options_and_each_is_tried_at_its_limits() -> None:
    assert set(LIMITS) == NAMES == set(SearchOptions.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("options", SERVED, ids=str)
def test_an_option_at_its_limit_is_served(letters_live: LiveService, options: Options) -> None:
    translate_over_both(letters_live, {**TEXT, "options": options})


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_an_option_beyond_its_limits_is_refused_by_name_and_value(letters_live: LiveService, options: Options) -> None:
    name, value = list(options.items())[-1]
    field, message = refusal_of_both(letters_live, {**TEXT, "options": options})
    assert field == f"options.{name}"
    assert isinstance(value, list) or json.dumps(value) in message


# The end token of the fake model has the piece "<s>".
@pytest.mark.parametrize("piece", ["ä", "", "<s>"])
def test_only_pieces_of_the_vocabulary_except_the_end_token_can_be_suppressed(
    letters_live: LiveService, piece: str
) -> None:
    vocabulary = letters_live.pipeline.limits.search.vocabulary
    assert (vocabulary.pieces[EOS_ID], len(vocabulary.ids)) == ("<s>", VOCABULARY)
    field, message = refusal_of_both(letters_live, {**TEXT, "options": {"suppressed_tokens": ["ab", piece]}})
    assert field == "options.suppressed_tokens[1]"
    assert json.dumps(piece) in message


@pytest.mark.parametrize(
    ("name", "value"),
    [("beam_size", "1" + "0" * 1000), *((name, value) for name, values in WRONG_JSON.items() for value in values)],
)
def test_json_of_the_wrong_type_is_refused_by_name(letters_live: LiveService, name: str, value: str) -> None:
    content = f'{{"text": "ab", "options": {{"{name}": {value}}}}}'.encode()
    problem = letters_live.post(content=content, headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, f"options.{name}")
    assert len(problem["detail"]) < 1000


@pytest.mark.parametrize(("pieces", "index"), [("[5]", 0), ('["a", "\\ud83d"]', 1)])
def test_a_suppressed_token_that_is_no_text_is_refused_by_its_index(
    letters_live: LiveService, pieces: str, index: int
) -> None:
    content = f'{{"text": "ab", "options": {{"suppressed_tokens": {pieces}}}}}'.encode()
    problem = letters_live.post(content=content, headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, f"options.suppressed_tokens[{index}]")


def test_the_requests_that_fit_take_the_slots_and_the_queue(letters_live: LiveService) -> None:
    beams = {"options": {"beam_size": SLOTS}}
    translate_over_both(letters_live, {"text": ["ab"] * 2, **beams})
    assert refusal_of_both(letters_live, {"text": ["ab"] * 3, **beams})[0] == "text"


@pytest.mark.parametrize(("field", "fields"), CASES["a server without alignments names the options that bring them"])
def test_a_server_without_alignments_names_the_options_that_bring_them(
    live: LiveService, field: str, fields: dict[str, Any]
) -> None:
    refused, message = refusal_of_both(live, {"text": ["alpha"], **fields})
    assert refused == field
    assert "--no-alignments" in message
    assert "--align LAYER:HEAD" in message


def test_the_first_of_many_unknown_names_ends_the_validation(letters_live: LiveService) -> None:
    content = json.dumps({"text": "ab", "options": {f"x{number}": 0 for number in range(500)}}).encode()
    assert letters_live.post(content=content, headers=JSON).json()["field"] == "options.x0"
