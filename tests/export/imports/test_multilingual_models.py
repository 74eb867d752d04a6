"""An imported multilingual checkpoint reads and generates the tokens of its own library, in every direction."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import M2M100Tokenizer, MBart50Tokenizer, NllbTokenizer
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

from benchmarks.harness.process import peak_bytes
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.golden import golden_samples
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.export.source_model import find_direction
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.host.system import available_cpus
from tests.support import multilingual
from tests.support.cases import cases
from tests.support.comparisons import LIMIT, answers, write_imported
from tests.support.ctranslate2_models import translate
from tests.support.multilingual import generate, write_ctranslate2, write_m2m100, write_mbart50, write_nllb

CASES = cases(__file__)

OPTIONS = ImportOptions(max_source_tokens=40, max_target_tokens=LIMIT + 1)
WRITERS: dict[str, Callable[[Path], Any]] = {"m2m100": write_m2m100, "nllb": write_nllb, "mbart50": write_mbart50}
WRITERS["small100"] = multilingual.write_small100
SIDES = ("encoder", "decoder")
Texts = tuple[str, ...]
# Width, layers of each side and their inner width; all have 16 heads.
NLLB_SHAPES = {"600M": (1024, 12, 4096), "1.3B": (1024, 24, 8192), "3.3B, two layers": (2048, 2, 8192)}
# Shapes, beams and texts of a test, which takes minutes.
TRUE_CASES = [
    *((shape, beam_size, slice(None)) for shape in ("600M", "3.3B, two layers") for beam_size in (1, 4)),
    ("1.3B", 1, slice(None)),
    *(("1.3B", 4, slice(first, first + 50)) for first in range(0, 200, 50)),
]
TRAINING_STEPS = 400
# Codes of several standards; the second direction is named by those of FLORES.
PAIRS = (("en", "de"), ("deu_Latn", "zh"))


@pytest.mark.parametrize("kind", WRITERS)
def test_every_token_is_that_of_transformers(kind: str, texts: Texts, tmp_path: Path) -> None:
    model = WRITERS[kind](tmp_path / "m")
    bundle = write_imported(import_checkpoint(tmp_path / "m", OPTIONS), tmp_path / "bundle")
    for languages in PAIRS:
        for beam_size in (1, 4):
            ours = answers(bundle, languages, texts, beam_size)
            assert ours.targets == generate(model, ours.sources, beam_size, LIMIT, ours.direction.start)
            assert len(set(ours.targets)) > len(texts) / 4, "otherwise the translations tell nothing"


@pytest.mark.parametrize("kind", WRITERS)
def test_every_token_of_a_trained_model_is_that_of_its_libraries(
    kind: str, texts: Texts, tmp_path: Path, thorough: bool
) -> None:
    if not thorough:
        pytest.skip("trains for a minute: --thorough")
    model = WRITERS[kind](tmp_path / "m")
    multilingual.train_languages(tmp_path / "m", model, TRAINING_STEPS)
    exportable = import_checkpoint(tmp_path / "m", OPTIONS)
    bundle, pieces = write_imported(exportable, tmp_path / "bundle"), exportable.tokenizer.source_pieces
    write_ctranslate2(model, pieces, tmp_path / "ct2")
    for languages, correct in multilingual.TASKS.items():
        for beam_size in (1, 4):
            ours = answers(bundle, languages, texts, beam_size)
            assert ours.targets == generate(model, ours.sources, beam_size, LIMIT, ours.direction.start)
            start, *given = [[pieces[token] for token in source] for source in (ours.direction.start, *ours.sources)]
            expected = translate(tmp_path / "ct2", given, beam_size, LIMIT, 1.0, start=start, shortest=1)
            assert [[pieces[token] for token in target] for target in ours.targets] == expected
            translations = [exportable.tokenizer.decode(target) for target in ours.targets]
            right = sum(map(str.__eq__, translations, map(correct, texts)))
            assert right > len(texts) / 2, "otherwise it has not learned the language"


@pytest.mark.parametrize(("shape", "beam_size", "part"), TRUE_CASES)
def test_layers_of_true_width_generate_the_tokens_of_transformers(
    shape: str, beam_size: int, part: slice, texts: Texts, tmp_path: Path, *, thorough: bool
) -> None:
    """Only one of both models is in memory at a time."""
    if not thorough:
        pytest.skip("computes wide layers: --thorough")
    width, layers, inner_width = NLLB_SHAPES[shape]
    sides: dict[str, int] = {}
    for side in SIDES:
        sides |= {f"{side}_layers": layers, f"{side}_ffn_dim": inner_width, f"{side}_attention_heads": 16}
    model = write_nllb(tmp_path / "m", d_model=width, **sides)
    exportable = import_checkpoint(tmp_path / "m", OPTIONS)
    direction = find_direction(exportable, PAIRS[0])
    sources = [exportable.source_ids(direction.source_prefix, text) for text in texts[part]]
    expected = generate(model, sources, beam_size, LIMIT, direction.start)
    del model
    bundle = write_bundle(exportable, golden_samples(exportable)[:3], tmp_path / "bundle", BundleOptions("many"))
    ours = answers(bundle, PAIRS[0], texts[part], beam_size, threads=available_cpus())
    assert (ours.sources, ours.direction) == (sources, direction)
    print(f"{peak_bytes() / 1e9:.1f} GB")
    # After a token of padding in a translation, which only a random model writes, the library has other positions.
    pairs = [pair for pair in zip(ours.targets, expected, strict=True) if multilingual.PAD_ID not in pair[1]]
    assert all(mine == theirs for mine, theirs in pairs)
    assert len({mine for mine, _ in pairs}) > len(sources) / 4, "otherwise the translations tell nothing"


@pytest.mark.parametrize("kind", ["m2m100", "small100", "mbart50"])
def test_a_converted_model_translates_like_ctranslate2(kind: str, texts: Texts, tmp_path: Path) -> None:
    """CTranslate2 ends no translation right after its start."""
    model = WRITERS[kind](tmp_path / "m")
    pieces = import_checkpoint(tmp_path / "m", OPTIONS).tokenizer.source_pieces
    write_ctranslate2(model, pieces, tmp_path / "ct2")
    bundle = write_imported(import_ctranslate2(tmp_path / "ct2", OPTIONS), tmp_path / "bundle")
    for languages in PAIRS:
        for beam_size in (1, 4):
            ours = answers(bundle, languages, texts, beam_size, empty=False)
            start = [pieces[token] for token in ours.direction.start]
            given = [[pieces[token] for token in source] for source in ours.sources]
            expected = translate(tmp_path / "ct2", given, beam_size, LIMIT, 1.0, start=start, shortest=1)
            assert [[pieces[token] for token in target] for target in ours.targets] == expected


def original_tokenizer(kind: str, folder: Path) -> Any:
    if kind == "nllb":  # its library reads languages only from another file
        tokenizer = NllbTokenizer.from_pretrained(folder)
        tokenizer.add_special_tokens({"extra_special_tokens": list(NLLB_CODES)})
        return tokenizer
    return (M2M100Tokenizer if kind == "m2m100" else MBart50Tokenizer).from_pretrained(folder)


def token_of(kind: str, language: str) -> str:
    return {"m2m100": f"__{language}__", "mbart50": {"en": "en_XX", "de": "de_DE"}[language]}[kind]


@pytest.mark.parametrize("kind", ["m2m100", "nllb", "mbart50"])
def test_a_source_has_the_tokens_of_the_original_tokenizer(kind: str, texts: Texts, tmp_path: Path) -> None:
    WRITERS[kind](tmp_path)
    exportable, theirs = import_checkpoint(tmp_path, OPTIONS), original_tokenizer(kind, tmp_path)
    # At the end of a text, the fast tokenizers keep a space that SentencePiece and fairseq do not read.
    for text in (*texts, "unknown: 漢字 Ωμέγα", "two  spaces", "___", "<mask> </s> __de__ deu_Latn de_DE"):
        if "<" in text and kind == "nllb":
            continue
        expected = theirs(text, add_special_tokens=False).input_ids
        ours = exportable.tokenizer.encode(text)
        if "<" not in text:  # a text never selects a language here
            assert ours == expected, text
        assert not {exportable.tokenizer.source_pieces.index("</s>")} & set(ours)
    if kind != "nllb":
        direction = find_direction(exportable, ("en", "de"))
        assert direction.source_prefix == (theirs.convert_tokens_to_ids(token_of(kind, "en")),)
        assert direction.start == (theirs.convert_tokens_to_ids(token_of(kind, "de")),)


def test_the_languages_of_nllb_follow_its_pieces_in_the_order_of_its_library(tmp_path: Path) -> None:
    write_nllb(tmp_path)
    pieces = import_checkpoint(tmp_path, OPTIONS).tokenizer.source_pieces
    first = pieces.index(NLLB_CODES[0])
    assert list(pieces[first : first + len(NLLB_CODES)]) == list(NLLB_CODES)
    assert pieces[first + len(NLLB_CODES)] == "<mask>"


def test_options_select_directions(tmp_path: Path) -> None:
    write_m2m100(tmp_path)
    both = import_checkpoint(tmp_path, ImportOptions("en", "deu_Latn"))
    assert ([str(direction) for direction in both.directions], both.multilingual) == (["en-de"], None)
    assert len(import_checkpoint(tmp_path, ImportOptions(target_language="de")).directions) == 99
    with pytest.raises(ImportedModelError, match="source-language: tlh: expected one of af, am"):
        import_checkpoint(tmp_path, ImportOptions("tlh"))


def test_a_model_that_forces_a_language_translates_into_that_alone(tmp_path: Path) -> None:
    write_mbart50(tmp_path)
    path = tmp_path / "config.json"
    english = find_direction(import_checkpoint(tmp_path, OPTIONS), ("de", "en")).start[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "forced_bos_token_id": english}))
    directions = directions_of(import_checkpoint(tmp_path, OPTIONS))
    assert len(directions) == 51
    assert {target for _, target in directions.pairs()} == {"en"}


@pytest.mark.parametrize(("change", "expected"), CASES["other models are refused by the field"])
def test_other_models_are_refused_by_the_field(change: dict[str, object], expected: str, tmp_path: Path) -> None:
    write_mbart50(tmp_path)
    for name in ("config.json", "tokenizer_config.json"):
        path = tmp_path / name
        fields = json.loads(path.read_text())
        path.write_text(json.dumps({**fields, **{key: value for key, value in change.items() if key in fields}}))
    with pytest.raises(ImportedModelError) as refused:
        import_checkpoint(tmp_path, OPTIONS)
    assert expected in str(refused.value)
