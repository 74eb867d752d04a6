"""An imported Marian checkpoint generates the tokens that `transformers` generates."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from transformers import MarianTokenizer

from dragoman import command_line
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.source_model import Exportable
from dragoman.model.search import generate_beam, generate_greedy
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.tokenizer import load_tokenizer
from tests.support import commands, marian
from tests.support.cases import cases
from tests.support.comparisons import compare, write_imported
from tests.support.marian import generate, make_texts, marian_vocabulary, random_marian, translate_words, write_marian
from tests.support.mutations import damage

CASES = cases(__file__)

SENTENCES = 40
LIMIT = 30
OPTIONS = ImportOptions(max_target_tokens=LIMIT)
TEXTS = make_texts(5, SENTENCES)
VOCABULARY = marian_vocabulary()
# Every checkpoint option that changes the computation.
RANDOM: dict[str, dict[str, Any]] = {
    "usual": {},
    "relu": {"activation_function": "relu"},
    "gelu, unscaled": {"activation_function": "gelu", "scale_embedding": False},
    "depths": {"encoder_layers": 3, "decoder_layers": 2, "seed": 5},
    "nothing tied": {"tie_word_embeddings": False, "seed": 5},
}


@pytest.fixture(scope="module")
def model() -> Any:
    return random_marian(len(VOCABULARY))


@pytest.fixture(scope="module")
def checkpoint(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("marian"), model, VOCABULARY)


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return copytree(checkpoint, tmp_path / "marian")


def change(path: Path, **fields: object) -> None:
    """Changes fields of a JSON file; None removes a field."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **fields}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def refusal(folder: Path, options: ImportOptions = OPTIONS) -> str:
    with pytest.raises(ImportedModelError) as refused:
        import_checkpoint(folder, options)
    return str(refused.value).removeprefix(f"{folder}").removeprefix("/")


def sources_of(exportable: Exportable) -> list[tuple[int, ...]]:
    return [exportable.source_ids(exportable.directions[0].source_prefix, text) for text in TEXTS]


def check_same_as_transformers(model: Any, exportable: Exportable, count: int = SENTENCES) -> None:
    """Compares translations of greedy search and of beam size 4."""
    sources = sources_of(exportable)[:count]
    limit = exportable.model.limits.max_target_tokens
    greedy = [answer.target_ids for answer in generate_greedy(exportable.network, sources)]
    assert greedy == generate(model, sources, 1, limit)
    beam = [answer.target_ids for answer in generate_beam(exportable.network, sources, 4, 1.0)]
    assert beam == generate(model, sources, 4, limit)
    assert len(set(beam)) > count / 4, "otherwise the translations tell nothing"


def test_a_trained_model_translates_like_transformers(tmp_path: Path, *, thorough: bool) -> None:
    if not thorough:
        pytest.skip("trains for seconds: --thorough")
    model = marian.trained_marian(VOCABULARY)
    exportable = import_checkpoint(write_marian(tmp_path / "m", model, VOCABULARY), OPTIONS)
    check_same_as_transformers(model, exportable)
    answers = generate_beam(exportable.network, sources_of(exportable), 4, 1.0)
    translations = [exportable.tokenizer.decode(answer.target_ids) for answer in answers]
    assert sum(map(str.__eq__, translations, map(translate_words, TEXTS))) > SENTENCES / 3, (
        "otherwise the model has learned nothing"
    )


@pytest.mark.parametrize("options", RANDOM)
def test_a_random_model_translates_like_transformers(options: str, tmp_path: Path) -> None:
    model = random_marian(len(VOCABULARY), **RANDOM[options])
    check_same_as_transformers(model, import_checkpoint(write_marian(tmp_path / "m", model, VOCABULARY), OPTIONS))


def test_the_bundle_translates_like_pytorch_and_transformers(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    exportable = import_checkpoint(checkpoint, OPTIONS)
    comparisons = compare(write_imported(exportable, tmp_path / "bundle", make_texts(9, 20)), exportable, TEXTS)
    assert len(comparisons) == SENTENCES
    assert [comparison.text for comparison in comparisons if not comparison.identical] == []
    expected = dict(zip(TEXTS, generate(model, sources_of(exportable), 1, LIMIT), strict=True))
    assert {comparison.text: comparison.actual.target_ids for comparison in comparisons} == expected


def test_an_import_computes_in_8_bits_too(checkpoint: Path, tmp_path: Path) -> None:
    """Forbidden tokens are never generated."""
    exportable = import_checkpoint(checkpoint, OPTIONS)
    bundle = write_imported(exportable, tmp_path / "bundle", make_texts(9, 40), precision="int8")
    comparisons = compare(bundle, exportable, TEXTS)
    assert sum(comparison.identical for comparison in comparisons) > SENTENCES / 4
    assert all(VOCABULARY[marian.PAD_PIECE] not in comparison.actual.target_ids for comparison in comparisons)


def test_the_tokenizer_encodes_and_decodes_like_transformers(checkpoint: Path) -> None:
    tokenizer = import_checkpoint(checkpoint, OPTIONS).tokenizer
    theirs = MarianTokenizer.from_pretrained(checkpoint)
    texts = [*TEXTS, "Übel, 日本 baz!", "  bakoli   muneba ", "bakoli\tmuneba", "ﬁn"]
    assert [[*tokenizer.encode(text), 0] for text in texts] == theirs(texts)["input_ids"]
    targets = [tokenizer.encode(text) for text in map(translate_words, TEXTS)]
    known = [[token_id for token_id in target if token_id > 1] for target in targets]
    assert [tokenizer.decode(target) for target in known] == theirs.batch_decode(known, skip_special_tokens=True)


def test_both_forms_of_parameters_are_read_alike(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    pickled = write_marian(tmp_path / "m", model, VOCABULARY, safe=False)
    states = [import_checkpoint(folder, OPTIONS).network.state_dict() for folder in (checkpoint, pickled)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_separate_vocabularies_of_different_sizes_are_read(tmp_path: Path) -> None:
    target = {**VOCABULARY, "extra": len(VOCABULARY), "another": len(VOCABULARY) + 1}
    sizes = {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": False}
    model = random_marian(len(VOCABULARY), **sizes, seed=6)
    folder = write_marian(tmp_path / "m", model, VOCABULARY, separate_vocabs=True)
    (folder / "target_vocab.json").write_text(json.dumps(target), encoding="utf-8")
    exportable = import_checkpoint(folder, OPTIONS)
    check_same_as_transformers(model, exportable)
    bundle = write_imported(exportable, tmp_path / "bundle", make_texts(9, 20))
    ids = (len(target) - 1, 5, 6)
    assert load_tokenizer(bundle).decode(ids) == exportable.tokenizer.decode(ids)
    assert "another" in exportable.tokenizer.decode(ids)


def test_every_language_token_becomes_a_direction(tmp_path: Path) -> None:
    vocabulary = marian_vocabulary(">>fra<<", ">>spa<<", ">>zho_Hans<<")
    folder = write_marian(tmp_path / "m", random_marian(len(vocabulary)), vocabulary, target_lang="mul")
    exportable = import_checkpoint(folder, OPTIONS)
    prefixes = {direction.target: direction.source_prefix for direction in exportable.directions}
    assert prefixes == {"fra": (vocabulary[">>fra<<"],), "spa": (vocabulary[">>spa<<"],)}
    bundle = write_imported(exportable, tmp_path / "bundle", make_texts(9, 20))
    assert {sentence.target_language for sentence in bundle.golden} == {"fra", "spa"}
    only = import_checkpoint(folder, ImportOptions(target_language="spa", max_target_tokens=LIMIT))
    assert [direction.target for direction in only.directions] == ["spa"]
    assert refusal(folder, ImportOptions(target_language="fr")) == "target-language: fr: expected one of fra, spa"


def test_special_tokens_in_a_text_have_no_effect(tmp_path: Path) -> None:
    vocabulary = marian_vocabulary(">>fra<<")
    folder = write_marian(tmp_path / "m", random_marian(len(vocabulary)), vocabulary)
    tokenizer = import_checkpoint(folder, OPTIONS).tokenizer
    special = {vocabulary[piece] for piece in (">>fra<<", "</s>", marian.PAD_PIECE)}
    assert special.isdisjoint(tokenizer.encode(">>fra<< bakoli </s> <pad>"))


def test_languages_are_options_if_the_files_lack_them(folder: Path) -> None:
    change(folder / "tokenizer_config.json", source_lang=None, target_lang="zh_cn")
    assert refusal(folder).startswith("source-language: None: expected an ISO 639 code")
    assert refusal(folder, ImportOptions("en")).startswith("target-language: zh_cn: ")
    (direction,) = import_checkpoint(folder, ImportOptions("en", "zh")).directions
    assert str(direction) == "en-zh"


def test_limits_are_those_of_the_positions(checkpoint: Path) -> None:
    limits = import_checkpoint(checkpoint, ImportOptions()).model.limits
    assert (limits.max_source_tokens, limits.max_target_tokens) == (63, 63)
    limits = import_checkpoint(checkpoint, ImportOptions(max_source_tokens=64)).model.limits
    assert limits.max_source_tokens == 64
    message = refusal(checkpoint, ImportOptions(max_target_tokens=64))
    assert message.startswith("max-target-tokens: 64: expected at most 63")


@pytest.mark.parametrize(("field", "value", "expected"), CASES["unsupported fields are refused by name"])
def test_unsupported_fields_are_refused_by_name(folder: Path, field: str, value: object, expected: str) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", **{field: value})
    message = refusal(folder)
    assert message.startswith("config.json: ")
    assert f"{field}: {expected}" in message


@pytest.mark.parametrize(
    ("field", "value"), [("repetition_penalty", 1.5), ("no_repeat_ngram_size", 3), ("suppress_tokens", [5])]
)
def test_unsupported_search_options_are_refused(folder: Path, field: str, value: object) -> None:
    change(folder / "generation_config.json", **{field: value})
    assert refusal(folder).startswith(f"generation_config.json: {field}: {value}: expected ")


def test_an_unsupported_head_size_is_refused(tmp_path: Path) -> None:
    heads = {"encoder_attention_heads": 16, "decoder_attention_heads": 16}
    folder = write_marian(tmp_path / "m", random_marian(len(VOCABULARY), **heads), VOCABULARY)
    assert refusal(folder).startswith("d_model")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [*CASES["damaged files are named"], ("model.safetensors", slice(-100), "model.safetensors: cannot be read: ")],
)
def test_damaged_files_are_named(folder: Path, name: str, content: str | slice | None, expected: str) -> None:
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    damage(folder / name, content.encode("latin-1") if isinstance(content, str) else content)
    assert refusal(folder).removeprefix(": ").startswith(expected)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda state: state.pop("final_logits_bias"), "final_logits_bias: missing"),
        (
            lambda state: state.update(final_logits_bias=torch.zeros(1, 5)),
            "final_logits_bias: shape is (1, 5), expected",
        ),
        (lambda state: state.pop("model.decoder.layers.0.fc1.weight"), "decoder.layers.0.fc1.weight: missing"),
        (
            lambda state: state.update({"model.encoder.layer_norm.weight": torch.zeros(64)}),
            "model.encoder.layer_norm.weight: ",
        ),
        (lambda state: state.update({"model.decoder.layers.0.fc1.bias": torch.zeros(5)}), "expected (96,)"),
        (lambda state: state.update({"model.encoder.layers.0.fc1.weight": "text"}), "fc1.weight: expected a dense"),
    ],
)
def test_parameters_that_do_not_fit_are_named(
    model: Any, tmp_path: Path, spoil: Callable[..., object], expected: str
) -> None:
    folder = write_marian(tmp_path / "m", model, VOCABULARY, safe=False)
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    spoil(state)
    torch.save(state, folder / "pytorch_model.bin")
    assert expected in refusal(folder)


def test_the_command_names_the_field_that_is_wrong(folder: Path, tmp_path: Path) -> None:
    change(folder / "config.json", normalize_before=True)
    expected = f"dragoman export: from-marian: {folder}/config.json: normalize_before: True: expected False"
    assert commands.refusal("export", "--from-marian", str(folder), "--out", str(tmp_path / "b")) == expected
    assert not (tmp_path / "b").exists()


def test_given_sentences_become_golden(checkpoint: Path, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("bakoli muneba\n\nkobara\n", encoding="utf-8")
    limits = ["--max-source-tokens=40", "--max-target-tokens=30"]
    arguments = ["--from-marian", str(checkpoint), "--sentences", str(sentences), *limits]
    command_line.run("export", [*arguments, "--out", str(tmp_path / "b")])
    bundle = Bundle.open(tmp_path / "b")
    assert [sentence.source for sentence in bundle.golden] == ["bakoli muneba", "kobara"]
    assert (bundle.manifest.max_source_tokens, bundle.manifest.max_target_tokens) == (40, 30)
    assert bundle.manifest.bos_id == bundle.manifest.pad_id == VOCABULARY[marian.PAD_PIECE]


@pytest.mark.parametrize(("arguments", "expected"), CASES["options that do not fit the source are refused by name"])
def test_options_that_do_not_fit_the_source_are_refused_by_name(
    arguments: list[str], expected: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m").symlink_to(checkpoint)
    Path("corpus.txt").write_text("kobara\n" * 1001, encoding="utf-8")
    assert commands.refusal("export", *arguments, "--out", "b").startswith(f"dragoman export: {expected}")
