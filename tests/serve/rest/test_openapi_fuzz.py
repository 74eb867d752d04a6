"""R31, hostile REST input: responses conform to the OpenAPI document, for requests that it allows and others.

schemathesis generates a few requests per operation. The model is a fake.
"""

from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from dragoman.serve.edge.reader import TIMEOUT_HEADER
from tests.support.live import WAIT_SECONDS, LiveService, eventually
from tests.support.promises import Measured

# On a busy machine, generating requests exceeds Hypothesis's health limits.
UNTIMED = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
FEW = settings(UNTIMED, max_examples=3, derandomize=True)
MANY = settings(UNTIMED, max_examples=100)


def no_fault_of_the_server(_: object, response: Any, case: schemathesis.Case[Any]) -> None:
    """The only server-side error allowed is a deadline that the client set."""
    passed = response.status_code == 504 and TIMEOUT_HEADER in (case.headers or {})
    assert response.status_code < 500 or passed, response.text


CHECKS = [
    no_fault_of_the_server,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.mark.promise("R31")
@pytest.mark.parametrize(("mode", "requested_at_least"), [(GenerationMode.POSITIVE, 15), (GenerationMode.NEGATIVE, 6)])
def test_every_response_conforms_to_the_documentation(
    finite_live: LiveService, mode: GenerationMode, requested_at_least: int, measured: Measured, *, thorough: bool
) -> None:
    schema = schemathesis.openapi.from_dict(finite_live.get("/openapi.json").json())
    requested: Counter[str] = Counter()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if "{version}" in operation.path:
            continue  # the same as without it
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # an operation without input has no invalid requests

        @(MANY if thorough else FEW)
        @given(operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(base_url=finite_live.http_url, checks=CHECKS, timeout=WAIT_SECONDS)
            requested[case.operation.label] += 1

        ask()
    assert len(requested) >= requested_at_least
    measured("R31", f"{requested.total()} requests, {mode.value}, to {len(requested)} routes")
    finite_live.settle()
    assert finite_live.metric("requests_total", outcome="internal") == 0
    eventually(lambda: finite_live.metric("sequences_running") + finite_live.metric("sequences_waiting") == 0)
