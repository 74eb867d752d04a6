"""Native engines with shortlists: the tokens of the engine in Python, and the same bits in any company."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from dragoman.export.verify.stepper import Reader
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.shortlist import Shortlist
from dragoman.serve.native.library import FALLBACK, INSTRUCTIONS_VARIABLE
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from dragoman.serve.search.options import SearchOptions
from tests.serve.engine.native.test_session_model import Specs, each_model, in_python, natively, two_layers
from tests.serve.native.test_library import available_sets
from tests.support.paths import ROOT
from tests.support.searches import GRID
from tests.support.shortlists import with_shortlist

pytestmark = pytest.mark.skipif(bool(why_no_kernels()), reason=why_no_kernels())
LIMIT = 20


class Listed(NamedTuple):
    """A bundle with its shortlist."""

    bundle: Bundle
    shortlist: Shortlist

    def specs(self, count: int, options: Sequence[dict[str, Any]], seed: int = 0) -> Specs:
        """Returns random sources with options in turn, three of four with a shortlist."""
        random, manifest = np.random.default_rng(seed), self.bundle.manifest
        specs = []
        for number in range(count):
            if number % 3 != 1:  # every third one has the source before it
                source = random.integers(4, manifest.vocabulary_size, random.integers(1, manifest.max_source_tokens))
            further = random.integers(4, manifest.vocabulary_size, random.integers(3)).tolist()
            listed: dict[str, Any] = {"shortlist": number % 4 > 0, "candidate_ids": tuple(further)}
            chosen = options[number % len(options)] | listed
            specs.append(((*source.tolist(), manifest.eos_id), SearchOptions(LIMIT, **chosen)))
        return specs


@each_model
def listed(
    request: pytest.FixtureRequest,
    tokenizer: Tokenizer,
    untrained: Callable[..., Bundle],
    tmp_path_factory: pytest.TempPathFactory,
) -> Listed:
    bundle, model = two_layers(request.param, tokenizer.vocabulary_size, untrained)
    return Listed(*with_shortlist(bundle, model, tmp_path_factory.mktemp("listed")))


def best_ids(found: list[tuple[object, ...]]) -> tuple[int, ...]:
    (target_ids, *_), *_ = found
    assert isinstance(target_ids, tuple)
    return target_ids


def test_every_search_finds_what_the_engine_in_python_finds(listed: Listed) -> None:
    specs = listed.specs(3 * len(GRID), list(GRID.values()))
    expected = in_python(listed.bundle, specs, listed.shortlist)
    for (error, found), (expected_error, hypotheses) in zip(natively(listed.bundle, specs), expected, strict=True):
        assert error is expected_error
        assert [item[0] for item in found] == [item[0] for item in hypotheses]


def test_a_translation_uses_its_candidates_alone(listed: Listed) -> None:
    manifest = listed.bundle.manifest
    specs = listed.specs(20, [{}, {"beam_size": 4}, {"temperature": 2.0}])
    for (source_ids, options), (_, found) in zip(specs, natively(listed.bundle, specs), strict=True):
        candidates = listed.shortlist.candidates(source_ids, (*options.candidate_ids, manifest.eos_id)).tolist()
        assert not options.shortlist or set(best_ids(found)) <= set(candidates)


@pytest.mark.promise("R1")
def test_company_and_engines_change_no_bit(listed: Listed, *, thorough: bool) -> None:
    specs = listed.specs(200 if thorough else 30, list(GRID.values()))
    alone = [natively(listed.bundle, [spec])[0] for spec in specs]
    assert natively(listed.bundle, specs) == alone
    assert natively(listed.bundle, specs, engines=2) == alone
    assert natively(listed.bundle, specs, threads_per_engine=2) == alone


def differing(bundle: Bundle, specs: Specs, patch: pytest.MonkeyPatch) -> set[int]:
    """Returns how many results differ between instruction sets, one sequence at a time and many, greedy and beam 4."""
    counts = set()
    for beam_size in (1, 4):
        found, beams = [], [(source, options._replace(beam_size=beam_size)) for source, options in specs]
        for name in available_sets():
            patch.setenv(INSTRUCTIONS_VARIABLE, name)
            found += [natively(bundle, beams, slots=slots) for slots in (beam_size, 32)]
        counts |= {sum(one != other for one, other in zip(found[0], others, strict=True)) for others in found}
    return counts


@pytest.mark.promise("R1")
def test_company_changes_no_bit_with_any_set(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert differing(listed.bundle, listed.specs(24, [{}]), monkeypatch) == {0}


def test_company_changes_no_real_text(monkeypatch: pytest.MonkeyPatch, *, thorough: bool) -> None:
    bundle = Bundle.open(ROOT / "bundles" / "included")
    lines = (ROOT / "model/everyday/sentences/days.tsv").read_text().splitlines()[: 2048 if thorough else 8]
    options, read = SearchOptions(128, shortlist=bundle.manifest.shortlist is not None), Reader(bundle)
    specs = [(read.source_ids(("en", "de"), line.partition("\t")[0]), options) for line in lines]
    for first in range(0, len(specs), 64):
        assert differing(bundle, specs[first : first + 64], monkeypatch) == {0}


def test_the_fallback_of_the_operators_finds_the_same_tokens(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    if listed.bundle.manifest.precision != "fp32":
        pytest.skip("8-bit products of the fallback may round to another token")
    specs = listed.specs(9, [{}, {"beam_size": 3}])
    expected = natively(listed.bundle, specs)
    monkeypatch.setenv(INSTRUCTIONS_VARIABLE, FALLBACK)
    found = in_python(listed.bundle, specs, listed.shortlist)
    assert [best_ids(hypotheses) for _, hypotheses in found] == [best_ids(hypotheses) for _, hypotheses in expected]
