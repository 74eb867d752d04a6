"""`dragoman export --shortlist` makes a shortlist from sentence pairs, and `dragoman shortlist` measures it."""

from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.export.origin import read_origin
from dragoman.export.shortlist import make_shortlist
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import RunError
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.shortlist import read_shortlist
from tests.support.commands import Capture, refusal
from tests.support.toy import toy_sentences, toy_test_sentences, translate_toy, write_pairs


@pytest.fixture(scope="module")
def listed(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listed")
    data = write_pairs(folder, "pairs", toy_sentences())
    command_line.run("export", [str(toy_bundle), "--shortlist", data, "--out", str(folder / "bundle")])
    return folder / "bundle"


def test_translations_of_a_token_are_learned_from_pairs_alone(toy_bundle: Path) -> None:
    exportable, _ = read_origin(toy_bundle)
    sources = list(toy_sentences())
    targets = list(map(translate_toy, sources))
    shortlist = make_shortlist(exportable, [Corpus("en", "de", sources, targets)])
    direction = exportable.directions[0]
    for source, target in zip(sources[:20], targets, strict=False):
        source_ids = exportable.source_ids(direction.source_prefix, source)
        found = set(shortlist.candidates(source_ids).tolist())
        assert {*exportable.tokenizer.encode_target(target), *source_ids} <= found
    with pytest.raises(RunError, match="expected sentence pairs"):
        make_shortlist(exportable, [Corpus("en", "de", [], [])])


def test_a_bundle_that_is_exported_again_keeps_its_shortlist(listed: Path, tmp_path: Path) -> None:
    command_line.run("export", [str(listed), "--out", str(tmp_path / "again")])
    again = Bundle.open(tmp_path / "again")
    tokens = again.manifest.vocabulary_size
    assert (tmp_path / "again" / "shortlist.bin").read_bytes() == (listed / "shortlist.bin").read_bytes()
    assert len(read_shortlist(listed / "shortlist.bin", tokens, tokens).offsets) == tokens + 1


def test_a_measurement_sets_the_default_and_is_shown(listed: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_pairs(tmp_path, "held-out", toy_test_sentences()[:100])
    command_line.run("shortlist", [str(listed), "--data", data])
    spec = Bundle.open(listed).manifest.shortlist
    assert spec is not None
    assert spec.default
    assert (spec.sentences, spec.recall > 0.99, spec.equal > 0.99) == (100, True, True)
    assert "The shortlist is on by default." in capsys.readouterr().out
    command_line.run("inspect", [str(listed)])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{spec.candidates:,.0f} candidates per sentence, which save" in shown


def test_a_bundle_without_a_shortlist_and_few_pairs_are_rejected(
    toy_bundle: Path, listed: Path, tmp_path: Path
) -> None:
    data = write_pairs(tmp_path, "few", toy_sentences()[:5])
    assert "no shortlist" in refusal("shortlist", str(toy_bundle), "--data", data)
    assert "expected at least 100 pairs of each direction, got 5" in refusal("shortlist", str(listed), "--data", data)
