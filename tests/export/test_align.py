"""`dragoman align` chooses the head that agrees best with reference links, and writes the links of every pair."""

from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.alignment.links import Link, format_links, parse_links
from dragoman.model.data.corpus import read_corpus, read_links
from dragoman.model.run import RunFolder
from tests.support.commands import Capture, refusal
from tests.support.paths import ROOT
from tests.support.toy import toy_test_sentences, write_pairs


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    return write_pairs(tmp_path, "test", toy_test_sentences()[:40])


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """The links of the first 20 pairs: the translations of toy words have the same order."""
    lines = [format_links((i, i) for i, _ in enumerate(text.split())) for text in toy_test_sentences()[:20]]
    path = tmp_path / "reference.align"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_best_head_links_toy_words_in_order(
    toy_run: RunFolder, pairs: str, reference: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out.align"
    arguments = [str(toy_run.path), "--data", pairs, "--reference", str(reference), "--output", str(out)]
    command_line.run("align", arguments)
    heading, first, *others, written = capsys.readouterr().out.splitlines()
    assert heading.split() == ["head", "shifted", "AER", "precision", "recall"]
    rates = [float(row.split()[2].removesuffix("%")) for row in (first, *others)]
    assert rates == sorted(rates)
    assert rates[0] < 20
    lines = out.read_text(encoding="utf-8").splitlines()
    corpus = read_corpus(pairs)
    assert len(lines) == len(corpus)
    assert len(read_links(out, corpus)) == len(corpus)
    assert written.endswith(f"of 40 pairs, head {first.split()[0]}{' shifted' if first.split()[1] == 'yes' else ''}")
    head = [*arguments, "--head", first.split()[0], *(["--shift"] if first.split()[1] == "yes" else [])]
    command_line.run("align", head)
    assert out.read_text(encoding="utf-8").splitlines() == lines


def test_every_target_word_has_one_link(toy_run: RunFolder, pairs: str, tmp_path: Path) -> None:
    out = tmp_path / "out.align"
    command_line.run("align", [str(toy_run.path), "--data", pairs, "--head", "0:1", "--output", str(out)])
    for line, sentence in zip(out.read_text(encoding="utf-8").splitlines(), toy_test_sentences(), strict=False):
        assert sorted(target for _, target in parse_links(line).sure) == list(range(len(sentence.split())))


def align(tmp_path: Path, languages: str, *options: str) -> list[frozenset[Link]]:
    """Returns the links of three captions that a model of both directions finds."""
    (tmp_path / "captions.en").write_text("Two dogs run.\nA man in a red shirt.\nThree women sit on a bench.\n")
    (tmp_path / "captions.de").write_text(
        "Zwei Hunde laufen.\nEin Mann in rotem Hemd.\nDrei Frauen sitzen auf einer Bank.\n"
    )
    data = "files:" + ",".join(str(tmp_path / f"captions.{language}") for language in languages.split("-"))
    out = tmp_path / "captions.align"
    command_line.run("align", [str(ROOT / "bundles/multi30k"), "--data", data, "--output", str(out), *options])
    return [parse_links(line).sure for line in out.read_text().splitlines()]


def test_links_of_both_ways_are_those_that_either_direction_finds(tmp_path: Path) -> None:
    forward, backward = (align(tmp_path, languages, "--head", "1:3") for languages in ("en-de", "de-en"))
    common = [links & {(i, j) for j, i in inverse} for links, inverse in zip(forward, backward, strict=True)]
    assert common != forward
    assert align(tmp_path, "en-de", "--both-ways", "--head", "1:3") == common


def test_both_ways_take_the_head_with_the_most_common_links(tmp_path: Path) -> None:
    others = [align(tmp_path, "en-de", "--both-ways", "--head", head) for head in ("0:0", "1:3", "2:0", "2:4")]
    assert sum(map(len, align(tmp_path, "en-de", "--both-ways"))) >= max(sum(map(len, links)) for links in others) > 0


def test_what_cannot_be_done_is_refused(toy_run: RunFolder, pairs: str, reference: Path, tmp_path: Path) -> None:
    run, out = str(toy_run.path), str(tmp_path / "out.align")
    assert "expected LAYER:HEAD, or --reference" in refusal("align", run, "--data", pairs, "--output", out)
    assert "de-en: expected a direction" in refusal("align", run, "--data", pairs, "--both-ways", "--output", out)
    assert "expected --output" in refusal("align", run, "--data", pairs, "--head", "0:0")
    assert "head: 1:0: expected at most 0:3" in refusal("align", run, "--data", pairs, "--head", "1:0", "--output", out)
    backwards = f"files:{tmp_path}/test.de,{tmp_path}/test.en"
    given = ["--data", backwards, "--head", "0:0", "--output", out]
    assert "de-en: expected a direction" in refusal("align", run, *given)
    reference.write_text("0-0\n9-9\n", encoding="utf-8")
    assert "line 2: expected links of" in refusal("align", run, "--data", pairs, "--reference", str(reference))
    reference.write_text("", encoding="utf-8")
    assert "0 lines, expected 1" in refusal("align", run, "--data", pairs, "--reference", str(reference))


def test_an_output_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    out = tmp_path / "no-such" / "out.align"
    expected = f"dragoman align: output: {out}: expected a file in an existing folder"
    assert refusal("align", "no-run", "--data", "no-data", "--head", "0:0", "--output", str(out)) == expected


def test_the_links_made_by_hand_are_well_formed() -> None:
    """One line per pair, at least one sure link each; the text itself is not part of the repository."""
    lines = (ROOT / "model/alignment/multi30k_validation.en-de.align").read_text(encoding="utf-8").splitlines()
    references = [parse_links(line) for line in lines]
    assert len(references) == 100
    assert all(reference.sure for reference in references)
    assert sum(len(reference.sure) for reference in references) == 1107
    assert sum(len(reference.possible) for reference in references) == 1107 + 219
