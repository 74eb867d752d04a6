"""An imported CTranslate2 model generates the tokens that CTranslate2 generates in float32."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import ctranslate2
import numpy as np
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec

import dragoman
from benchmarks.systems.ctranslate2_system import spec_of
from export.imports.common import ImportedModelError, ImportOptions
from export.imports.ctranslate2 import import_ctranslate2
from export.imports.ctranslate2_files import Variable, read_model_file
from export.make_bundle import BundleOptions, Sample, write_bundle
from export.source_model import Exportable
from model.config import Direction
from model.network.transformer import Transformer
from model.run import RunFolder
from model.search import generate_beam, generate_greedy
from model.tokenizer.piece_tokenizer import PieceTokenizer
from model.tokenizer.tokenizer import Tokenizer
from model.weights import TransformerWeights
from protos.translation_pb2 import TranslateRequest
from serve.bundle.bundle import Bundle
from serve.runtime.sessions import load_sessions
from tests.conftest import WORDS
from tests.support.comparisons import compare
from tests.support.ctranslate2_models import fill_with_zeros, model_file, translate, write_model, write_package
from tests.support.live import run_service
from tests.support.marian import make_texts, marian_vocabulary, trained_marian, write_marian
from tests.support.toy import OPTIONS, random_model, toy_test_sentences

SENTENCES = 80
LIMIT = 20
ASKED = ImportOptions("en", "de", max_source_tokens=70, max_target_tokens=LIMIT)
SIZES = {"d_model": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "max_source_tokens": 80}
# Models with different computations, and kinds of weights.
MODELS = {name: OPTIONS[name] for name in ("default", "pre-norm", "modern", "silu", "unscaled", "output bias")}
KINDS = ("float32", "float16", "bfloat16", "int16", "int8")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers", "ignore::UserWarning:transformers")


@pytest.fixture(scope="module")
def texts() -> tuple[str, ...]:
    random = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < SENTENCES:
        found[" ".join(random.choice(WORDS, random.integers(1, 8)))] = None
    return tuple(found)


def make_model(tokenizer: Tokenizer, **options: Any) -> Transformer:
    return random_model(7, tokenizer.vocabulary_size, **{**SIZES, "max_target_tokens": LIMIT, **options})


@pytest.fixture(scope="module")
def small(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Transformer."""
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    return write_model(tmp_path_factory.mktemp("ctranslate2") / "small", spec, tokenizer=tokenizer)


@pytest.fixture
def folder(small: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return copytree(small, tmp_path / "small")


def refusal(path: Path, options: ImportOptions = ASKED) -> str:
    """Returns the error of an import."""
    with pytest.raises(ImportedModelError) as refused:
        import_ctranslate2(path, options)
    return str(refused.value).removeprefix(f"{path}").removeprefix("/")


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def check_same_as_ctranslate2(folder: Path, exportable: Exportable, texts: tuple[str, ...]) -> None:
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
def test_our_models_translate_like_ctranslate2(
    options: str, tokenizer: Tokenizer, texts: tuple[str, ...], tmp_path: Path
) -> None:
    model = make_model(tokenizer, **MODELS[options])
    folder = write_model(tmp_path / "m", spec_of(model, tokenizer.source_pieces), tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, ASKED)
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


def compute_positions(stack: Any) -> None:
    stack.position_encodings.encodings = "__optional"


def scale_by_factor(stack: Any) -> None:
    stack.scale_embeddings = 8.0


@pytest.mark.parametrize("change", [compute_positions, scale_by_factor])
def test_positions_that_ctranslate2_computes_and_scales_by_a_factor_are_the_same(
    change: Callable[[Any], None], tokenizer: Tokenizer, texts: tuple[str, ...], tmp_path: Path
) -> None:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    for stack in (spec.encoder, spec.decoder):
        change(stack)
    folder = write_model(tmp_path / "m", spec, tokenizer=tokenizer)
    check_same_as_ctranslate2(folder, import_ctranslate2(folder, ASKED), texts)


def test_source_prefix_and_suffix_follow_the_configuration(folder: Path, texts: tuple[str, ...]) -> None:
    change_config(folder, add_source_eos=False, add_source_bos=True)
    exportable = import_ctranslate2(folder, ASKED)
    assert exportable.source_suffix == ()
    assert exportable.directions[0].source_prefix == (2,)
    tokenizer = exportable.tokenizer
    sources = [exportable.source_ids((2,), text) for text in texts]
    theirs = translate(folder, [[tokenizer.source_pieces[i] for i in source[1:]] for source in sources], 1, LIMIT)
    answers = generate_greedy(exportable.network, sources)
    assert [[tokenizer.source_pieces[i] for i in answer.target_ids] for answer in answers] == theirs


def test_separate_vocabularies_of_different_sizes_are_read(
    tokenizer: Tokenizer, texts: tuple[str, ...], tmp_path: Path
) -> None:
    """The smaller vocabulary is padded with tokens that are never generated."""
    pieces = tokenizer.source_pieces
    spec = spec_of(make_model(tokenizer, tie_embeddings=False), pieces)
    fewer = len(pieces) - 10
    spec.decoder.embeddings.weight = spec.decoder.embeddings.weight[:fewer]
    spec.decoder.projection.weight = spec.decoder.projection.weight[:fewer]
    spec._vocabularies["target"] = [list(pieces[:fewer])]
    folder = write_model(tmp_path / "m", spec, tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, ASKED)
    check_same_as_ctranslate2(folder, exportable, texts)
    assert exportable.model.vocabulary_size == len(pieces)


def test_a_vocabulary_without_padding_gets_a_token_for_it(
    tokenizer: Tokenizer, texts: tuple[str, ...], tmp_path: Path
) -> None:
    pieces = ["never", *tokenizer.source_pieces[1:]]
    folder = write_model(tmp_path / "m", spec_of(make_model(tokenizer), pieces), tokenizer=tokenizer)
    exportable = import_ctranslate2(folder, ASKED)
    assert exportable.model.pad_id == len(pieces) == exportable.model.vocabulary_size - 1
    check_same_as_ctranslate2(folder, exportable, texts)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_converted_marian_model_translates_like_ctranslate2(kind: str, tmp_path: Path) -> None:
    vocabulary = marian_vocabulary()
    checkpoint = write_marian(tmp_path / "marian", trained_marian(vocabulary, 150), vocabulary)
    converter = TransformersConverter(str(checkpoint), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "m"), quantization=kind)
    exportable = import_ctranslate2(tmp_path / "m", ImportOptions("en", "de", max_target_tokens=LIMIT))
    check_same_as_ctranslate2(tmp_path / "m", exportable, make_texts(5, SENTENCES))
    assert exportable.source_suffix == (vocabulary["</s>"],)
    # The padding token, which their converter removes and ours starts from.
    assert exportable.model.vocabulary_size == len(vocabulary)
    assert exportable.model.bos_id == exportable.model.pad_id == len(vocabulary) - 1


@pytest.mark.parametrize("options", ["default", "modern"])
def test_a_bundle_generates_the_tokens_of_pytorch(
    options: str, tokenizer: Tokenizer, texts: tuple[str, ...], tmp_path: Path
) -> None:
    spec = spec_of(make_model(tokenizer, **OPTIONS[options]), tokenizer.source_pieces)
    exportable = import_ctranslate2(write_model(tmp_path / "m", spec, "int8", tokenizer), ASKED)
    direction = Direction(source="en", target="de")
    samples = [Sample(direction, text) for text in texts[:20]]
    bundle = write_bundle(exportable, samples, tmp_path / "bundle", BundleOptions("ctranslate2"))
    comparisons = compare(bundle, exportable, texts)
    assert len(comparisons) == SENTENCES
    assert [comparison.text for comparison in comparisons if not comparison.identical] == []


@pytest.mark.parametrize("packed", [True, False])
def test_an_argos_package_is_exported_and_served(packed: bool, toy_run: RunFolder, tmp_path: Path) -> None:
    trained = toy_run.load()
    assert isinstance(trained.model, Transformer)
    model = write_model(tmp_path / "m", spec_of(trained.model, trained.tokenizer.source_pieces), "int8")
    path = write_package(tmp_path / "en_de.argosmodel", model, trained.tokenizer.model)
    if not packed:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tmp_path)
        path = tmp_path / "en_de"
    dragoman.run("export", ["--from-ctranslate2", str(path), "--out", str(tmp_path / "bundle"), "--name", "argos"])
    bundle = Bundle.open(tmp_path / "bundle")
    assert [str(direction) for direction in bundle.manifest.directions] == ["en-de"]
    texts = toy_test_sentences()[:20]
    given = [trained.tokenizer.pieces(trained.tokenizer.encode(text)) for text in texts]
    expected = translate(model, given, 1, bundle.manifest.max_target_tokens)
    with run_service(bundle.folder, [load_sessions(bundle, threads=1).runtime(slots=8)]) as live:
        answer = live.call(TranslateRequest(text=texts, source_language="en", target_language="de"))
    # Pieces joined as in Argos Translate.
    assert [each.text for each in answer.translations] == ["".join(p).replace("▁", " ").strip() for p in expected]


def refuse_spec(tmp_path: Path, tokenizer: Tokenizer, spec: TransformerSpec) -> str:
    return refusal(write_model(tmp_path / "m", spec, tokenizer=tokenizer)).removeprefix("model.bin: ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"activation": 4}, "encoder/activation: GELU by sigmoid: expected ReLU, GELU by tanh, Swish, GELU"),
    ],
)
def test_unsupported_computations_are_refused_by_name(
    tmp_path: Path, tokenizer: Tokenizer, options: dict[str, Any], expected: str
) -> None:
    spec = TransformerSpec.from_config(1, 4, **options)
    fill_with_zeros(spec, tokenizer.vocabulary_size)
    spec.register_source_vocabulary(list(tokenizer.source_pieces))
    spec.register_target_vocabulary(list(tokenizer.source_pieces))
    assert expected in refuse_spec(tmp_path, tokenizer, spec)


def set_rotary(spec: Any) -> None:
    for stack in (spec.encoder, spec.decoder):
        for layer in stack.layer:
            object.__setattr__(layer.self_attention, "rotary_dim", np.array(0, np.int32))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda spec: setattr(spec.decoder, "alibi", True), "decoder/alibi: 1: expected no such option"),
        (lambda spec: setattr(spec.decoder, "scale_outputs", np.float32(0.5)), "decoder/scale_outputs: 0.5: expected"),
        (set_rotary, "self_attention/rotary_dim: 0: expected no such option"),
        (
            lambda spec: setattr(spec.encoder, "num_heads", np.int16(8)),
            "decoder: heads: 4: expected 8 as in the encoder",
        ),
        (
            lambda spec: setattr(spec.encoder, "scale_embeddings", 3.0),
            "encoder/scale_embeddings: 3.0: expected 1 or 8.0",
        ),
        (lambda spec: setattr(spec.config, "decoder_start_token", None), "config.json: decoder_start_token: null"),
        (
            lambda spec: setattr(spec.config, "unk_token", "<?>"),
            "shared_vocabulary.json: expected the special piece <?>",
        ),
    ],
)
def test_unsupported_options_are_refused_by_name(
    tmp_path: Path, tokenizer: Tokenizer, change: Callable[[Any], object], expected: str
) -> None:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    change(spec)
    assert expected in refuse_spec(tmp_path, tokenizer, spec)


def test_a_decoder_only_model_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    spec = TransformerDecoderModelSpec.from_config(1, 4)
    fill_with_zeros(spec, tokenizer.vocabulary_size)
    spec.register_vocabulary(list(tokenizer.source_pieces))
    folder = write_model(tmp_path / "m", spec, tokenizer=tokenizer)
    assert refusal(folder).startswith("model.bin: TransformerDecoderSpec: expected TransformerSpec, an encoder-decoder")


def test_vocabularies_of_earlier_versions_are_read(folder: Path) -> None:
    pieces = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    before = import_ctranslate2(folder, ASKED).tokenizer
    (folder / "shared_vocabulary.json").unlink()
    (folder / "shared_vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    after = import_ctranslate2(folder, ASKED).tokenizer
    assert after.source_pieces == before.source_pieces
    assert ctranslate2.contains_model(str(folder))


def delete(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (delete("model.bin"), "model.bin: No such file or directory"),
        (write("model.bin", b"PK\3\4"), "model.bin: not a CTranslate2 model: binary version is "),
        (delete("config.json"), "config.json: No such file or directory"),
        (write("config.json", b"[]"), "config.json: expected a JSON object"),
        (write("config.json", b'{"eos_token": 5}'), "config.json: eos_token: Input should be a valid string"),
        (delete("shared_vocabulary.json"), ": expected shared_vocabulary, or source_vocabulary and target_vocabulary"),
        (write("shared_vocabulary.json", b"{}"), "shared_vocabulary.json: expected a list of pieces"),
        (write("shared_vocabulary.json", b'["<unk>", "<s>", "</s>"]'), "shared_vocabulary.json: 3 pieces, expected "),
        (write("source_1_vocabulary.json", b"[]"), ": source_1_vocabulary: several source features, expected one"),
        (delete("sentencepiece.model"), ": expected bpe.model or a SentencePiece model"),
        (write("sentencepiece.model", b"none"), ": source: not a SentencePiece model"),
    ],
)
def test_damaged_files_are_named(folder: Path, damage: Callable[[Path], object], expected: str) -> None:
    damage(folder)
    assert refusal(folder).startswith(expected)


def test_languages_must_be_options_if_the_files_lack_them(small: Path) -> None:
    assert refusal(small, ImportOptions()).startswith("source-language: None: expected an ISO 639 code")
    assert refusal(small, ImportOptions("en")).startswith("target-language: None: expected an ISO 639 code")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"type": "sbd"}, "metadata.json: type: sbd: expected translate"),
        ({"target_prefix": "__fr__"}, "shared_vocabulary.json: expected the special piece __fr__"),
        ({"target_prefix": 3}, "metadata.json: target_prefix: 3: expected a token"),
        ({"from_code": None}, "metadata.json: from_code, to_code: None, de: expected"),
    ],
)
def test_another_kind_of_package_is_refused(
    small: Path, tokenizer: Tokenizer, tmp_path: Path, metadata: dict[str, object], expected: str
) -> None:
    path = write_package(tmp_path / "p.argosmodel", small, tokenizer.model, **metadata)
    with pytest.raises(ImportedModelError, match=expected):
        import_ctranslate2(path, ASKED)


def test_the_target_prefix_of_a_package_starts_every_translation(
    small: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prefix = tokenizer.source_pieces[5]
    path = write_package(tmp_path / "p.argosmodel", small, tokenizer.model, target_prefix=prefix)
    (direction,) = import_ctranslate2(path, ImportOptions()).directions
    assert direction.start == (5,)


def test_options_select_one_of_several_packages_in_a_file(small: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write_package(tmp_path / "p.argosmodel", small, tokenizer.model)
    with zipfile.ZipFile(path, "a") as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("metadata.json"):
                content = json.dumps({**json.loads(content), "to_code": "fr"}).encode()
            archive.writestr(name.replace("en_de/", "en_fr/"), content)
    (direction,) = import_ctranslate2(path, ImportOptions(target_language="fr")).directions
    assert str(direction) == "en-fr"
    for options, given in ((ImportOptions("en"), "en-?"), (ImportOptions("en", "cs"), "en-cs")):
        with pytest.raises(ImportedModelError, match=re.escape(f"{given}: expected one of en-de, en-fr")):
            import_ctranslate2(path, options)


def test_a_file_that_is_no_package_is_refused(small: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "p.argosmodel"
    whole = write_package(path, small, tokenizer.model).read_bytes()
    for content in (b"", b"PK\3\4", b"\x00" * 100, whole[:-50]):
        path.write_bytes(content)
        assert refusal(path).startswith(": expected a model folder or an Argos package")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/model.bin", b"")
    assert refusal(path).startswith(": expected an Argos package")


@pytest.mark.parametrize(("version", "start"), [(5, "<s>"), (3, "</s>")])
def test_variables_of_an_earlier_version_replace_the_configuration(
    folder: Path, texts: tuple[str, ...], version: int, start: str
) -> None:
    """Such a model has no configuration file, and one option for both stacks."""
    after = import_ctranslate2(folder, ASKED).network.state_dict()
    variables = read_model_file(folder / "model.bin").variables
    flags = {"with_source_eos": True, "with_target_bos": start == "<s>"}
    earlier = {name: np.array(value, np.int8) for name, value in flags.items()}
    earlier |= {name: value for name, value in variables.items() if not name.startswith(("encoder/num", "decoder/num"))}
    earlier["num_heads"] = np.array(4, np.int8)
    (folder / "model.bin").write_bytes(model_file(earlier, version=version, revision=4))
    (folder / "config.json").unlink()
    exportable = import_ctranslate2(folder, ASKED)
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


class Earlier(NamedTuple):
    """A specification that stores no number of heads."""

    specification: str
    version: int
    revision: int
    heads: int


@pytest.mark.parametrize(
    "earlier",
    [
        Earlier("", 1, 1, 8),
        Earlier("TransformerBase", 2, 1, 8),
        Earlier("TransformerBig", 2, 2, 16),
        Earlier("TransformerBig", 3, 1, 16),
    ],
    ids=str,
)
def test_earlier_specifications_translate_like_ctranslate2(
    earlier: Earlier, tokenizer: Tokenizer, texts: tuple[str, ...], tmp_path: Path
) -> None:
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
    exportable = import_ctranslate2(folder, ASKED)
    check_same_as_ctranslate2(folder, exportable, texts)


@pytest.mark.parametrize("revision", [0, 8])
def test_another_revision_is_refused(folder: Path, revision: int) -> None:
    (folder / "model.bin").write_bytes(model_file({}, revision=revision))
    assert refusal(folder).startswith(f"model.bin: revision of TransformerSpec is {revision}, expected 1 to 7")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("encoder/layer_0/self_attention/linear_0/weight", np.zeros((5, 64)), "shape is (5, 64): expected 192 rows"),
        ("encoder/layer_0/self_attention/linear_0/bias", np.zeros(2), "linear_0/bias: shape is (2,), expected (192,)"),
        ("decoder/layer_1/ffn/linear_1/weight", np.zeros(64), "linear_1/weight: shape is (64,), expected a matrix"),
        ("decoder/layer_1/ffn/linear_1/weight", np.zeros((64, 5)), "feed_forward.outer.weight: shape is (64, 5)"),
        ("decoder/layer_1/ffn/layer_norm/gamma", None, "decoder/layer_1/ffn/layer_norm/gamma: missing"),
        ("encoder/layer_0/self_attention/linear_0/weight", None, "no layers: expected at least one each"),
        ("encoder/num_heads", None, "encoder/num_heads: missing"),
        ("decoder/projection/bias", np.zeros(5), "decoder/projection/bias: shape is (5,), expected (31,)"),
        ("encoder/position_encodings/encodings", np.zeros((80, 5)), "source_positions.table: shape is (70, 5)"),
        ("decoder/position_encodings/encodings", np.zeros((40, 64)), "max-source-tokens: 70: expected at most 40"),
    ],
)
def test_variables_that_do_not_fit_are_named(folder: Path, name: str, value: Variable | None, expected: str) -> None:
    path = folder / "model.bin"
    variables = {**read_model_file(path).variables, name: np.asarray(value, np.float32)}
    if value is None:
        del variables[name]
    if name.endswith("/weight"):
        variables.pop(name.replace("/weight", "/bias"), None)
    path.write_bytes(model_file(variables))
    assert expected in refusal(folder)


@pytest.mark.parametrize(
    ("layer", "count", "expected"),
    [
        (-1, 1, []),
        (-3, 0, []),
        (0, 2, [(0, 0), (0, 1)]),
        (1, 1, [(1, 0)]),
        (1, 0, [(1, 0), (1, 1), (1, 2), (1, 3)]),
        (-2, 2, [(0, 0), (0, 1)]),
        (2, 1, "decoder/alignment_layer: 2: expected -2 to 1"),
        (0, 5, "decoder/alignment_heads: 5: expected 0 to 4"),
    ],
)
def test_heads_that_the_file_names_give_the_alignments(
    layer: int, count: int, expected: list[tuple[int, int]] | str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    spec.decoder.alignment_layer = np.int16(layer)
    spec.decoder.alignment_heads = np.int16(count)
    path = write_model(tmp_path / "model", spec, tokenizer=tokenizer)
    if isinstance(expected, str):
        assert refusal(path).endswith(expected)
    else:
        heads = import_ctranslate2(path, ASKED).alignment_heads
        assert [(each.layer, each.head) for each in heads] == expected
