"""Licenses of text, by their SPDX identifiers, and under which of them a mixture may be distributed.

A model is trained on all texts together. Texts under permissive licenses go together, each under its own. A copyleft
license wants the whole under one license, so every other text must permit that license too.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from dragoman.model.errors import CorpusError

# What a mixture is distributed under, where the texts of a license permit it.
PERMISSIVE, GPL_2, GPL_3, CC_BY_SA, GFDL = "permissive licenses", "GPL-2.0", "GPL-3.0", "CC-BY-SA-4.0", "GFDL-1.3"

# The outcomes of each license.
OUTCOMES: dict[str, frozenset[str]] = {
    name: frozenset(outcomes)
    for name, outcomes in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8")).items()
}


def is_permissive(license_name: str) -> bool:
    """Returns whether texts of a license may be in the included model."""
    return PERMISSIVE in OUTCOMES[license_name]


def license_of_mixture(licenses: Mapping[str, str]) -> str:
    """Returns the license of a mixture of sources; raises CorpusError if no license permits all of them together."""
    names = set(licenses.values())
    common = _common(names)
    for outcome in (PERMISSIVE, GPL_2, GPL_3, CC_BY_SA, GFDL):
        if outcome in common:
            return outcome
    # Only licenses that exclude each other.
    for name in sorted(names, key=lambda name: (-len(OUTCOMES[name]), name)):
        if not _common(names - {name}):
            names.remove(name)
    sources = {
        name: ", ".join(license_name for license_name in licenses if licenses[license_name] == name)
        for name in sorted(names)
    }
    listed = "; ".join(f"{name}: {source}" for name, source in sources.items())
    raise CorpusError(f"a model of these texts may not be distributed, no license permits all of them: {listed}")


def _common(names: Iterable[str]) -> frozenset[str]:
    """Returns what texts of all these licenses may be distributed under."""
    return frozenset.intersection(*(OUTCOMES[name] for name in names))
