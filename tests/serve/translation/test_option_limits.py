"""Every search option at its limits and beyond, and every invalid combination, over both interfaces."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from protos.translation_pb2 import SearchOptions
from serve.translation.fields import SearchFields
from tests.support.fakes import EOS_ID, VOCABULARY
from tests.support.live import MAX_TARGET_TOKENS, LiveService, run_service
from tests.support.wire import JSON, refusal_of_both, translate_over_both

TEXT = {"text": ["ab ba"]}
Options = dict[str, Any]

# Slots and queue limit of `letters_live`.
SLOTS = 8
DRAWN: Options = {"temperature": 1.0, "seed": 0}

AT_LIMITS: list[Options] = [
    {"temperature": 0.0},
    {"temperature": 5e-324, "seed": 1},
    {"temperature": 100.0, "seed": 1},
    {"beam_size": 1},
    {"beam_size": SLOTS},
    {"beam_size": 2, "patience": 5e-324},
    {"beam_size": 2, "patience": 10.0},
    {"hypotheses": 1},
    {"beam_size": SLOTS, "hypotheses": SLOTS},
    {"beam_size": 4, "patience": 0.5, "hypotheses": 2},
    {**DRAWN, "hypotheses": SLOTS},
    {"beam_size": 2, "length_penalty": 0.0},
    {"beam_size": 2, "length_penalty": 10.0},
    {"beam_size": 2, "coverage_penalty": 0.0},
    {"beam_size": 2, "coverage_penalty": 10.0},
    {**DRAWN, "top_k": 0},
    {**DRAWN, "top_k": 1_000_000},
    {**DRAWN, "top_p": 5e-324},
    {**DRAWN, "top_p": 1.0},
    {**DRAWN, "seed": 2**64 - 1},
    {"max_target_tokens": 1},
    {"max_target_tokens": MAX_TARGET_TOKENS},
    {"min_target_tokens": 0},
    {"min_target_tokens": MAX_TARGET_TOKENS},
    {"min_target_tokens": 3, "max_target_tokens": 3},
    {"max_target_ratio": 5e-324},
    {"max_target_ratio": 100.0},
    {"min_target_ratio": 0.0},
    {"min_target_ratio": 100.0},
    {"min_target_ratio": 0.5, "max_target_ratio": 0.5},
    {"repetition_penalty": 0.1},
    {"repetition_penalty": 10.0},
    {"no_repeat_ngram_tokens": 0},
    {"no_repeat_ngram_tokens": 1000},
    {"suppressed_tokens": []},
    {"suppressed_tokens": ["ab"] * 64},
    {"suppress_unknown": True},
    {"suppress_unknown": False},
    {"token_scores": True},
    {"token_scores": False},
    {"alignments": True},
    {"alignments": False},
]

# Options, the name of the rejected one, and its value in the message.
REFUSED: list[tuple[Options, str, str]] = [
    ({"temperature": -5e-324}, "temperature", "-5e-324"),
    ({"temperature": 100.1}, "temperature", "100.1"),
    ({"beam_size": 0}, "beam_size", "0"),
    ({"beam_size": 9}, "beam_size", "9"),
    ({"beam_size": 1001}, "beam_size", "1001"),
    ({"beam_size": 2**32 - 1}, "beam_size", "4294967295"),
    ({"beam_size": 2, "patience": 0.0}, "patience", "0.0"),
    ({"beam_size": 2, "patience": 10.5}, "patience", "10.5"),
    ({"hypotheses": 0}, "hypotheses", "0"),
    ({**DRAWN, "hypotheses": 9}, "hypotheses", "9"),
    ({**DRAWN, "hypotheses": 1001}, "hypotheses", "1001"),
    ({"length_penalty": -0.1}, "length_penalty", "-0.1"),
    ({"length_penalty": 10.1}, "length_penalty", "10.1"),
    ({"coverage_penalty": -0.1}, "coverage_penalty", "-0.1"),
    ({"coverage_penalty": 1e308}, "coverage_penalty", "1e+308"),
    ({**DRAWN, "top_k": 1_000_001}, "top_k", "1000001"),
    ({**DRAWN, "top_p": 0.0}, "top_p", "0.0"),
    ({**DRAWN, "top_p": 1.5}, "top_p", "1.5"),
    ({"max_target_tokens": 0}, "max_target_tokens", "0"),
    ({"max_target_tokens": 21}, "max_target_tokens", "21"),
    ({"max_target_tokens": 2**32 - 1}, "max_target_tokens", "4294967295"),
    ({"min_target_tokens": 21}, "min_target_tokens", "21"),
    ({"max_target_ratio": 0.0}, "max_target_ratio", "0.0"),
    ({"max_target_ratio": 101.0}, "max_target_ratio", "101.0"),
    ({"min_target_ratio": -1.0}, "min_target_ratio", "-1.0"),
    ({"min_target_ratio": 101.0}, "min_target_ratio", "101.0"),
    ({"repetition_penalty": 0.05}, "repetition_penalty", "0.05"),
    ({"repetition_penalty": 10.5}, "repetition_penalty", "10.5"),
    ({"no_repeat_ngram_tokens": 1001}, "no_repeat_ngram_tokens", "1001"),
    ({"suppressed_tokens": ["a"] * 65}, "suppressed_tokens", "a list"),
    ({"suppressed_tokens": ["a", "ä"]}, "suppressed_tokens[1]", '"\\u00e4"'),
    ({"suppressed_tokens": [""]}, "suppressed_tokens[0]", '""'),
    # Combinations.
    ({"beam_size": 2, "temperature": 1.0}, "beam_size", "2"),
    ({"patience": 2.0}, "patience", "2.0"),
    ({"hypotheses": 2}, "hypotheses", "2"),
    ({"beam_size": 3, "hypotheses": 4}, "hypotheses", "4"),
    ({"beam_size": 4, "patience": 0.5, "hypotheses": 3}, "hypotheses", "3"),
    ({"top_k": 5}, "top_k", "5"),
    ({"top_p": 0.5}, "top_p", "0.5"),
    ({"seed": 0}, "seed", "0"),
    ({"max_target_tokens": 4, "min_target_tokens": 5}, "min_target_tokens", "5"),
    ({"max_target_ratio": 0.5, "min_target_ratio": 0.6}, "min_target_ratio", "0.6"),
    *(
        ({**others, name: value}, name, spelled)
        for name, others in {
            "temperature": {},
            "patience": {"beam_size": 2},
            "length_penalty": {},
            "coverage_penalty": {},
            "top_p": DRAWN,
            "max_target_ratio": {},
            "min_target_ratio": {},
            "repetition_penalty": {},
        }.items()
        for value, spelled in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"))
    ),
]

# Values that protobuf cannot express.
WRONG_JSON: list[tuple[str, str]] = [
    ('{"beam_size": -1}', "beam_size"),
    ('{"beam_size": "5"}', "beam_size"),
    ('{"beam_size": 5.0}', "beam_size"),
    ('{"beam_size": true}', "beam_size"),
    ('{"beam_size": null}', "beam_size"),
    ('{"beam_size": 1' + "0" * 1000 + "}", "beam_size"),
    ('{"temperature": "1"}', "temperature"),
    ('{"temperature": true}', "temperature"),
    ('{"temperature": 1e400}', "temperature"),
    ('{"temperature": [1]}', "temperature"),
    ('{"temperature": 1, "seed": -1}', "seed"),
    ('{"temperature": 1, "seed": 18446744073709551616}', "seed"),
    ('{"min_target_tokens": -1}', "min_target_tokens"),
    ('{"min_target_tokens": 4294967296}', "min_target_tokens"),
    ('{"max_target_tokens": 4294967296}', "max_target_tokens"),
    ('{"suppressed_tokens": "a"}', "suppressed_tokens"),
    ('{"suppressed_tokens": [5]}', "suppressed_tokens[0]"),
    ('{"suppressed_tokens": {"a": 1}}', "suppressed_tokens"),
    ('{"suppressed_tokens": ["a", "\\ud83d"]}', "suppressed_tokens[1]"),
    ('{"suppress_unknown": 1}', "suppress_unknown"),
    ('{"token_scores": "true"}', "token_scores"),
    ('{"alignments": null}', "alignments"),
    ('{"beamsize": 5}', "beamsize"),
    ('{"target_prefix": ["a"]}', "target_prefix"),
]


def test_every_option_is_tried_at_its_limits_and_beyond() -> None:
    """Exceptions: a seed out of range and a wrong boolean exist only in JSON."""
    assert {name for options in AT_LIMITS for name in options} == set(SearchFields.model_fields)
    refused = {name.partition("[")[0] for _, name, _ in REFUSED}
    assert set(SearchFields.model_fields) - refused == {"suppress_unknown", "token_scores", "alignments"}


def test_both_interfaces_have_the_same_options() -> None:
    assert set(SearchOptions.DESCRIPTOR.fields_by_name) == set(SearchFields.model_fields)


@pytest.mark.parametrize("options", AT_LIMITS, ids=str)
def test_an_option_at_its_limit_is_served(letters_live: LiveService, options: Options) -> None:
    translate_over_both(letters_live, {**TEXT, "options": options})


@pytest.mark.parametrize(("options", "name", "value"), REFUSED, ids=str)
def test_an_option_beyond_its_limits_is_refused_by_name(
    letters_live: LiveService, options: Options, name: str, value: str
) -> None:
    field, message = refusal_of_both(letters_live, {**TEXT, "options": options})
    assert field == f"options.{name}"
    assert message.startswith(f"options.{name}: {value}, expected ")


@pytest.mark.parametrize(("options", "name"), WRONG_JSON, ids=[name for _, name in WRONG_JSON])
def test_json_of_the_wrong_type_is_refused_by_name(letters_live: LiveService, options: str, name: str) -> None:
    content = f'{{"text": "ab", "options": {options}}}'.encode()
    problem = letters_live.post(content=content, headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, f"options.{name}")
    assert len(problem["detail"]) < 1000


def test_the_end_token_cannot_be_suppressed(letters_live: LiveService) -> None:
    vocabulary = letters_live.pipeline.limits.search.vocabulary
    field, message = refusal_of_both(
        letters_live, {**TEXT, "options": {"suppressed_tokens": [vocabulary.pieces[EOS_ID]]}}
    )
    assert field == "options.suppressed_tokens[0]"
    assert message.startswith(f"{field}: ")


def test_the_requests_that_fit_take_the_slots_and_the_queue(letters_live: LiveService) -> None:
    beams = {"options": {"beam_size": 8}}
    translate_over_both(letters_live, {"text": ["ab"], **beams})
    field, message = refusal_of_both(letters_live, {"text": ["ab"] * 3, **beams})
    assert field == "text"
    assert message.startswith("text: 3 texts of 8 hypotheses each, expected at most 16 ")


@pytest.mark.parametrize("options", [{"alignments": True}, {"beam_size": 2, "coverage_penalty": 0.5}], ids=str)
def test_a_server_without_alignments_says_what_to_do(bundle_path: Path, options: Options) -> None:
    with run_service(bundle_path) as live:
        field, message = refusal_of_both(live, {"text": ["alpha"], "options": options})
    assert field == f"options.{next(reversed(options))}"
    assert "--alignments" in message
    assert "--align LAYER:HEAD" in message


def test_unknown_names_cost_no_time(letters_live: LiveService) -> None:
    """The first of many unknown names ends the validation."""
    content = json.dumps({"text": "ab", "options": {f"x{number}": 0 for number in range(50_000)}}).encode()
    assert letters_live.post(content=content, headers=JSON).json()["field"] == "options.x0"


def test_the_vocabulary_is_that_of_the_model(letters_live: LiveService) -> None:
    assert len(letters_live.pipeline.limits.search.vocabulary.ids) == VOCABULARY
