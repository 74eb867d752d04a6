"""An imported CTranslate2 model generates the tokens that CTranslate2 generates in float32."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from ctranslate2.converters import TransformersConverter

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.ctranslate2_files import Variable, read_model_file
from dragoman.export.source_model import Exportable
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder
from dragoman.model.search import generate_beam, generate_greedy
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.model.weights import TransformerWeights
from tests.conftest import WORDS
from tests.support.cases import cases
from tests.support.ctranslate2_models import LIMIT, WANTED, make_model, model_file, refusal, translate, write_model
from tests.support.marian import make_texts, marian_vocabulary, random_marian, write_marian
from tests.support.toy import OPTIONS, toy_test_sentences

CASES = cases(__file__)

SENTENCES = 30
# Models with different computations, and kinds of weights.
MODELS = {name: OPTIONS[name] for name in ("default", "pre-norm", "modern", "silu", "unscaled", "output bias")}
KINDS = ("float32", "float16", "bfloat16", "int16", "int8")

Texts = tuple[str, ...]


@pytest.fixture(scope="module")
def texts() -> Texts:
    random = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < SENTENCES:
        found[" ".join(random.choice(WORDS, random.integers(1, 8)))] = None
    return tuple(found)


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def check_same_as_ctranslate2(folder: Path, exportable: Exportable, texts: Texts) -> None:
    """Compares translations of greedy search and of beam size 4 with two length penalties.

    Without a penalty, CTranslate2 continues until the best hypothesis is finished; Dragoman stops earlier.
    """
    tokenizer = exportable.tokenizer
    assert isinstance(tokenizer, PieceTokenizer)
    sources = [exportable.source_ids((), text) for text in texts]
    # CTranslate2 adds the tokens of config.json itself.
    suffix = len(exportable.source_suffix) if ctranslate2_adds_suffix(folder) else 0
    given = [[tokenizer.source_pieces[token_id] for token_id in ids[: len(ids) - suffix]] for ids in sources]
    limit = exportable.model.limits.max_target_tokens
    for beam_size, penalty in ((1, 1.0), (4, 1.0), (4, 0.2)):
        if beam_size == 1:
            answers = generate_greedy(exportable.network, sources)
        else:
            answers = generate_beam(exportable.network, sources, beam_size, penalty)
        ours = [[tokenizer.target_pieces[token_id] for token_id in answer.target_ids] for answer in answers]
        assert ours == translate(folder, given, beam_size, limit, penalty)


def ctranslate2_adds_suffix(folder: Path) -> bool:
    if not (folder / "config.json").is_file():
        return False
    config: dict[str, object] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return bool(config["add_source_eos"])


@pytest.mark.parametrize("options", MODELS)
def test_models_translate_like_ctranslate2(options: str, tokenizer: Tokenizer, texts: Texts, tmp_path: Path) -> None:
    model = make_model(tokenizer, **MODELS[options])
    folder = write_model(tmp_path / "m", spec_of(model, tokenizer.source_pieces), tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, WANTED)
    check_same_as_ctranslate2(folder, exportable, texts)
    assert isinstance(exportable.model, TransformerWeights)
    assert exportable.model.config.tie_embeddings == model.config.tie_embeddings


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_every_kind_are_read(kind: str, toy_run: RunFolder, tmp_path: Path) -> None:
    """With a trained model; float32 bit for bit."""
    trained = toy_run.load()
    assert isinstance(trained.model, Transformer)
    spec = spec_of(trained.model, trained.tokenizer.source_pieces)
    folder = write_model(tmp_path / "m", spec, kind, trained.tokenizer)
    exportable = import_ctranslate2(folder, ImportOptions("en", "de"))
    check_same_as_ctranslate2(folder, exportable, toy_test_sentences()[:SENTENCES])
    found, written = exportable.network.state_dict(), trained.model.state_dict()
    assert kind != "float32" or all(torch.equal(found[name], value) for name, value in written.items())


@pytest.mark.parametrize("dropped", [0, 1], ids=["without its row", "with its row"])
def test_an_unknown_piece_that_the_vocabulary_lacks_is_appended(
    dropped: int, tokenizer: Tokenizer, texts: Texts, tmp_path: Path
) -> None:
    """As CTranslate2 does; the matrices of models have a row for it or none."""
    folder = write_model(tmp_path / "m", spec_of(make_model(tokenizer), tokenizer.source_pieces), tokenizer=tokenizer)
    path = folder / "shared_vocabulary.json"
    pieces = ["<other>" if piece == "<unk>" else piece for piece in json.loads(path.read_text(encoding="utf-8"))]
    written = pieces[: len(pieces) - dropped]
    path.write_text(json.dumps(written), encoding="utf-8")
    exportable = import_ctranslate2(folder, WANTED)
    assert isinstance(exportable.tokenizer, PieceTokenizer)
    assert exportable.tokenizer.source_pieces == (*written, "<unk>")
    check_same_as_ctranslate2(folder, exportable, texts)


def compute_positions(stack: Any) -> None:
    stack.position_encodings.encodings = "__optional"


def scale_by_factor(stack: Any) -> None:
    stack.scale_embeddings = 8.0


@pytest.mark.parametrize("change", [compute_positions, scale_by_factor])
def test_positions_that_ctranslate2_computes_and_scales_by_a_factor_are_the_same(
    change: Callable[[Any], None], tokenizer: Tokenizer, texts: Texts, tmp_path: Path
) -> None:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    for stack in (spec.encoder, spec.decoder):
        change(stack)
    folder = write_model(tmp_path / "m", spec, tokenizer=tokenizer)
    check_same_as_ctranslate2(folder, import_ctranslate2(folder, WANTED), texts)


def test_source_prefix_and_suffix_follow_the_configuration(model_folder: Path, texts: Texts) -> None:
    change_config(model_folder, add_source_eos=False, add_source_bos=True)
    exportable = import_ctranslate2(model_folder, WANTED)
    assert exportable.source_suffix == ()
    assert exportable.directions[0].source_prefix == (2,)
    tokenizer = exportable.tokenizer
    sources = [exportable.source_ids((2,), text) for text in texts]
    theirs = translate(model_folder, [[tokenizer.source_pieces[i] for i in source[1:]] for source in sources], 1, LIMIT)
    answers = generate_greedy(exportable.network, sources)
    assert [[tokenizer.source_pieces[i] for i in answer.target_ids] for answer in answers] == theirs


def test_separate_vocabularies_of_different_sizes_are_read(tokenizer: Tokenizer, texts: Texts, tmp_path: Path) -> None:
    """The smaller vocabulary is padded with tokens that are never generated."""
    pieces = tokenizer.source_pieces
    spec = spec_of(make_model(tokenizer, tie_embeddings=False), pieces)
    fewer = len(pieces) - 10
    spec.decoder.embeddings.weight = spec.decoder.embeddings.weight[:fewer]
    spec.decoder.projection.weight = spec.decoder.projection.weight[:fewer]
    spec._vocabularies["target"] = [list(pieces[:fewer])]
    folder = write_model(tmp_path / "m", spec, tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, WANTED)
    check_same_as_ctranslate2(folder, exportable, texts)
    assert exportable.model.vocabulary_size == len(pieces)


def test_a_vocabulary_without_padding_gets_a_token_for_it(tokenizer: Tokenizer, texts: Texts, tmp_path: Path) -> None:
    pieces = ["never", *tokenizer.source_pieces[1:]]
    folder = write_model(tmp_path / "m", spec_of(make_model(tokenizer), pieces), tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, WANTED)
    assert exportable.model.pad_id == len(pieces) == exportable.model.vocabulary_size - 1
    check_same_as_ctranslate2(folder, exportable, texts)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_converted_marian_model_translates_like_ctranslate2(kind: str, tmp_path: Path) -> None:
    vocabulary = marian_vocabulary()
    checkpoint = write_marian(tmp_path / "marian", random_marian(len(vocabulary)), vocabulary)
    converter = TransformersConverter(str(checkpoint), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "m"), quantization=kind)
    exportable = import_ctranslate2(tmp_path / "m", ImportOptions("en", "de", max_target_tokens=LIMIT))
    check_same_as_ctranslate2(tmp_path / "m", exportable, make_texts(5, SENTENCES))
    assert exportable.source_suffix == (vocabulary["</s>"],)
    # The padding token, which their converter removes and ours starts from.
    assert exportable.model.vocabulary_size == len(vocabulary)
    assert exportable.model.bos_id == exportable.model.pad_id == len(vocabulary) - 1


def test_vocabularies_of_earlier_versions_are_read(model_folder: Path) -> None:
    pieces = json.loads((model_folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    before = import_ctranslate2(model_folder, WANTED).tokenizer
    (model_folder / "shared_vocabulary.json").unlink()
    (model_folder / "shared_vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    assert import_ctranslate2(model_folder, WANTED).tokenizer.source_pieces == before.source_pieces
    assert ctranslate2.contains_model(str(model_folder))


@pytest.mark.parametrize(("version", "start"), [(5, "<s>"), (3, "</s>")])
def test_old_variables_replace_the_configuration(model_folder: Path, texts: Texts, version: int, start: str) -> None:
    """Such a model has no configuration file, and one option for both stacks."""
    after = import_ctranslate2(model_folder, WANTED).network.state_dict()
    variables = read_model_file(model_folder / "model.bin").variables
    flags = {"with_source_eos": True, "with_target_bos": start == "<s>"}
    earlier: dict[str, Variable] = {name: np.array(value, np.int8) for name, value in flags.items()}
    earlier |= {name: value for name, value in variables.items() if not name.startswith(("encoder/num", "decoder/num"))}
    earlier["num_heads"] = np.array(4, np.int8)
    (model_folder / "model.bin").write_bytes(model_file(earlier, version=version, revision=4))
    (model_folder / "config.json").unlink()
    exportable = import_ctranslate2(model_folder, WANTED)
    found = exportable.network.state_dict()
    assert all(np.array_equal(found[name], after[name]) for name in after)
    assert exportable.model.bos_id == {"<s>": 2, "</s>": 3}[start]
    assert exportable.source_suffix == (3,)
    assert exportable.source_ids((), texts[0])[-1] == 3


def opennmt_name(name: str) -> str:
    """Returns the name of a variable in the first revision."""
    attentions = (
        (("self_attention", "multi_head"),)
        if name.startswith("encoder")
        else (("self_attention", "masked_multi_head"), ("/attention", "/multi_head"))
    )
    for now, then in (
        ("embeddings/weight", "w_embs"),
        ("embeddings_0/weight", "w_embs"),
        ("weight", "kernel"),
        ("layer_norm", "LayerNorm"),
        ("projection", "dense"),
        ("linear_0", "conv1d"),
        ("linear_", "conv1d_"),
        *attentions,
    ):
        name = name.replace(now, then)
    return f"transformer/{name}:0"


@pytest.mark.parametrize(
    "earlier", [("", 1, 1, 8), ("TransformerBase", 2, 1, 8), ("TransformerBig", 2, 2, 16), ("TransformerBig", 3, 1, 16)]
)
def test_earlier_specifications_translate_alike(
    earlier: tuple[str, int, int, int], tokenizer: Tokenizer, texts: Texts, tmp_path: Path
) -> None:
    """They store no number of heads."""
    specification, version, revision, heads = earlier
    model = make_model(tokenizer, d_model=8 * heads, heads=heads, norm_position="pre", tie_embeddings=False)
    folder = write_model(tmp_path / "m", spec_of(model, tokenizer.source_pieces), tokenizer=tokenizer)
    variables = {
        (opennmt_name(name) if revision == 1 else name): value
        for name, value in read_model_file(folder / "model.bin").variables.items()
        if value.ndim and "position_encodings" not in name
    }
    content = model_file(variables, version=version, revision=revision, specification=specification)
    (folder / "model.bin").write_bytes(content)
    (folder / "config.json").unlink()
    check_same_as_ctranslate2(folder, import_ctranslate2(folder, WANTED), texts)


@pytest.mark.parametrize(("layer", "count", "expected"), CASES["heads that the file names give the alignments"])
def test_heads_that_the_file_names_give_the_alignments(
    layer: int, count: int, expected: list[list[int]] | str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    spec.decoder.alignment_layer = np.int16(layer)
    spec.decoder.alignment_heads = np.int16(count)
    path = write_model(tmp_path / "model", spec, tokenizer=tokenizer)
    if isinstance(expected, str):
        assert refusal(path).endswith(expected)
    else:
        assert [[head.layer, head.head] for head in import_ctranslate2(path, WANTED).alignment_heads] == expected
