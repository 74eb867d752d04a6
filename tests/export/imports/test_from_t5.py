"""An imported T5, mT5 or MADLAD-400 checkpoint reads and generates the tokens of its own libraries."""

import json
from pathlib import Path

import onnx
import pytest
from safetensors.numpy import load_file, save_file
from sentencepiece import SentencePieceProcessor
from transformers import T5Tokenizer

from dragoman import command_line
from dragoman.export.graphs.native.layout import TABLES
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.source_model import Exportable, find_direction
from tests.support.cases import cases
from tests.support.comparisons import targets, write_imported
from tests.support.ctranslate2_models import translate
from tests.support.marian import translate_words
from tests.support.multilingual import generate
from tests.support.t5 import INSTRUCTION, write_ctranslate2, write_t5

CASES = cases(__file__)

LIMIT = 20
OPTIONS = ImportOptions("en", "de", max_source_tokens=40, max_target_tokens=LIMIT)
KINDS = ("t5", "t5-1.1", "mt5", "madlad")
SPECIAL = (0, 1)
TRAINING_STEPS = 1500


def sources_of(exportable: Exportable, texts: tuple[str, ...]) -> list[tuple[int, ...]]:
    direction = find_direction(exportable, ("en", "de"))
    return [exportable.source_ids(direction.source_prefix, text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_that_of_transformers(kind: str, texts: tuple[str, ...], tmp_path: Path) -> None:
    model = write_t5(tmp_path / "m", kind)
    exportable = import_checkpoint(tmp_path / "m", OPTIONS)
    bundle, sources = write_imported(exportable, tmp_path / "bundle"), sources_of(exportable, texts)
    for beam_size in (1, 4):
        ours = targets(bundle, sources, beam_size)
        assert ours == generate(model, sources, beam_size, LIMIT, (), special=SPECIAL)
        assert len(set(ours)) > len(texts) / 4, "otherwise the translations tell nothing"


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_products_take_matrices_as_the_file_has_them(precision: str, tmp_path: Path) -> None:
    """Otherwise ONNX Runtime would hold a copy of each."""
    write_t5(tmp_path / "m", "t5-1.1")
    bundle = write_imported(import_checkpoint(tmp_path / "m", OPTIONS), tmp_path / "bundle", precision=precision)
    for path in (bundle.encoder_path, bundle.decoder_path):
        (function,) = onnx.load(path, load_external_data=False).functions
        matrices = {name for name in function.input if name.endswith(".weight") and "norm" not in name}
        tables = {f"{name}.weight" for name in TABLES}
        reordered = {name for node in function.node if node.op_type in ("Transpose", "Reshape") for name in node.input}
        products = {node.input[1] for node in function.node if node.op_type.startswith("MatMul")}
        assert reordered & matrices <= tables
        assert matrices - tables <= products


@pytest.mark.parametrize("kind", ["t5", "t5-1.1", "madlad"])
def test_every_token_of_a_trained_model_is_that_of_transformers(
    kind: str, texts: tuple[str, ...], tmp_path: Path, thorough: bool
) -> None:
    if not thorough:
        pytest.skip("trains for minutes: --thorough")
    model = write_t5(tmp_path / "m", kind, training_steps=TRAINING_STEPS)
    exportable = import_checkpoint(tmp_path / "m", OPTIONS)
    bundle, sources = write_imported(exportable, tmp_path / "bundle"), sources_of(exportable, texts)
    correct = [translate_words(text) for text in texts]
    for beam_size in (1, 4):
        ours = targets(bundle, sources, beam_size)
        assert ours == generate(model, sources, beam_size, LIMIT, (), special=SPECIAL)
        translations = [exportable.tokenizer.decode(our) for our in ours]
        assert sum(map(str.__eq__, translations, correct)) > len(texts) / 2, "otherwise it has learned nothing"


@pytest.mark.parametrize("kind", ["t5", "madlad"])
def test_a_converted_model_translates_like_ctranslate2(kind: str, texts: tuple[str, ...], tmp_path: Path) -> None:
    model = write_t5(tmp_path / "m", kind)
    original = import_checkpoint(tmp_path / "m", OPTIONS)
    pieces = original.tokenizer.source_pieces
    write_ctranslate2(model, pieces, tmp_path / "ct2", (tmp_path / "m" / "spiece.model").read_bytes(), kind == "t5")
    exportable = import_ctranslate2(tmp_path / "ct2", OPTIONS)
    assert find_direction(exportable, ("en", "de")) == find_direction(original, ("en", "de"))
    bundle, sources = write_imported(exportable, tmp_path / "bundle"), sources_of(exportable, texts)
    for beam_size in (1, 4):
        given = [[pieces[token] for token in source] for source in sources]
        expected = translate(tmp_path / "ct2", given, beam_size, LIMIT, 1.0)
        assert [[pieces[token] for token in target] for target in targets(bundle, sources, beam_size)] == expected


def test_a_bundle_is_verified_with_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_t5(tmp_path / "m", "t5")
    write_imported(import_checkpoint(tmp_path / "m", OPTIONS), tmp_path / "bundle")
    command_line.run("verify", [str(tmp_path / "bundle"), "--original", str(tmp_path / "m")])
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["pass", "transformers,"]] * 2


def test_a_source_of_t5_has_the_tokens_of_transformers(texts: tuple[str, ...], tmp_path: Path) -> None:
    write_t5(tmp_path, "t5")
    exportable, theirs = import_checkpoint(tmp_path, OPTIONS), T5Tokenizer.from_pretrained(tmp_path)
    for text, ours in zip(texts, sources_of(exportable, texts), strict=True):
        assert list(ours) == theirs(INSTRUCTION + text).input_ids


def test_a_source_of_madlad_has_the_tokens_of_sentencepiece(texts: tuple[str, ...], tmp_path: Path) -> None:
    """As in training; newer versions of `transformers` omit the token of the space before that of the language."""
    write_t5(tmp_path, "madlad")
    exportable = import_checkpoint(tmp_path, OPTIONS)
    processor = SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    for text, ours in zip(texts, sources_of(exportable, texts), strict=True):
        assert list(ours) == [*processor.encode(f"<2de> {text}"), 1]


def test_madlad_translates_between_any_two_languages_and_texts_select_none(tmp_path: Path) -> None:
    write_t5(tmp_path, "madlad")
    exportable = import_checkpoint(tmp_path, ImportOptions())
    assert exportable.multilingual is not None
    codes = {language.language for language in exportable.multilingual.languages}
    assert codes == {"de", "en", "fr", "zh", "yue", "zh-Hant"}
    tokenizer = exportable.tokenizer
    token = tokenizer.source_pieces.index("<2de>")
    assert find_direction(exportable, ("fr", "de")).source_prefix[-1] == token
    assert token not in tokenizer.encode("<2de> bakoli")


def test_tasks_of_t5_are_directions_with_an_instruction(tmp_path: Path) -> None:
    write_t5(tmp_path, "t5")
    exportable = import_checkpoint(tmp_path, ImportOptions())
    assert [str(direction) for direction in exportable.directions] == ["en-de", "en-fr"]
    assert exportable.directions[0].source_prefix == tuple(exportable.tokenizer.encode(INSTRUCTION))


@pytest.mark.parametrize(("change", "expected"), CASES["other models are refused by the field"])
def test_other_models_are_refused_by_the_field(change: dict[str, object], expected: str, tmp_path: Path) -> None:
    write_t5(tmp_path, "t5-1.1")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ImportedModelError) as refused:
        import_checkpoint(tmp_path, OPTIONS)
    assert expected in str(refused.value)


def test_unknown_and_missing_tensors_are_refused_by_name(tmp_path: Path) -> None:
    write_t5(tmp_path, "t5-1.1")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "encoder.block.1.layer.0.SelfAttention.q.weight"
    for changed, expected in (
        ({**tensors, "adapter.weight": tensors[name]}, "adapter.weight: unsupported tensor"),
        ({tensor: value for tensor, value in tensors.items() if tensor != name}, f"{name}: missing tensor"),
    ):
        save_file(changed, path)
        with pytest.raises(ImportedModelError, match=expected):
            import_checkpoint(tmp_path, OPTIONS)
