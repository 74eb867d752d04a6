"""Licenses: a mixture has the license that all of its texts permit; without one it is refused with their names."""

import pytest

from dragoman.model.data.sources.licenses import OUTCOMES, is_permissive, license_of_mixture
from dragoman.model.data.sources.source_list import load_sources
from dragoman.model.errors import CorpusError
from tests.support.cases import cases

CASES = cases(__file__)


def test_permissive_licenses_go_together() -> None:
    licenses = {"a": "MPL-2.0", "b": "Apache-2.0", "c": "MIT", "d": "CC-BY-4.0"}
    assert license_of_mixture(licenses) == "permissive licenses"


@pytest.mark.parametrize(("licenses", "expected"), CASES["a copyleft license covers texts that permit it"])
def test_a_copyleft_license_covers_texts_that_permit_it(licenses: tuple[str, str], expected: str) -> None:
    assert license_of_mixture(dict(zip("ab", licenses, strict=True))) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [("Apache-2.0", "GPL-2.0-only"), ("GPL-2.0-only", "GPL-3.0-or-later"), ("GFDL-1.2-or-later", "CC-BY-SA-4.0")],
)
def test_a_mixture_without_a_common_license_is_refused_with_their_names(first: str, second: str) -> None:
    with pytest.raises(CorpusError) as refused:
        license_of_mixture({"one": first, "two": second, "three": "MIT"})
    assert all(f"{name}: {source}" in str(refused.value) for name, source in ((first, "one"), (second, "two")))
    assert "MIT" not in str(refused.value)


def test_every_source_has_a_known_license_and_the_included_ones_at_most_forty_packages() -> None:
    sources = load_sources()
    assert {source.license for source in sources.values()} <= OUTCOMES.keys()
    included = [source for source in sources.values() if is_permissive(source.license)]
    assert len({package for source in included for package in source.packages}) <= 40
    assert all(len(package.sha256) == 64 for source in sources.values() for package in source.packages.values())
