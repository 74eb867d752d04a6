"""A bundle opens if every file matches its manifest; each error names the file and the field."""

import json
import os
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from dragoman.serve.bundle import bundle as layout
from dragoman.serve.bundle import manifest as contract
from dragoman.serve.bundle.bundle import GOLDEN_FILE, MANIFEST_FILE, WEIGHTS_FILE, Bundle, BundleError, write_golden
from dragoman.serve.bundle.files import MAX_CHARACTERS
from dragoman.serve.bundle.manifest import CacheSpec, CacheTensor, Element, Length, StateSpec, present
from dragoman.serve.bundle.tokenizer import TOKENIZER_FILE
from tests.support.bundles import change_manifest, reseal
from tests.support.cases import cases

CASES = cases(__file__)

FILES = (*layout.GRAPH_FILES, WEIGHTS_FILE, TOKENIZER_FILE, GOLDEN_FILE)


@pytest.fixture
def folder(bundle_path: Path, tmp_path: Path) -> Path:
    """A bundle that a test may damage."""
    return copytree(bundle_path, tmp_path / "bundle")


def golden_json(**changes: object) -> bytes:
    """Returns the content of a file with one golden sentence."""
    languages = {"source_language": "en", "target_language": "de"}
    sentence = {**languages, "source": "a", "source_ids": [5], "target_ids": [], "target": "A", **changes}
    return json.dumps([sentence]).encode()


def refusal(folder: Path, file: str = MANIFEST_FILE) -> str:
    """Returns the error of a bundle that is rejected; it begins with the path of the file."""
    with pytest.raises(BundleError) as refused:
        Bundle.open(folder)
    message = str(refused.value)
    assert message.startswith(f"{folder / file}: ")
    return message


def test_a_bundle_opens_and_files_outside_the_manifest_are_ignored(folder: Path) -> None:
    (folder / "README.md").write_text("A model of ours.", encoding="utf-8")
    bundle = Bundle.open(folder)
    assert bundle.folder == folder
    assert bundle.manifest.format_version == 6
    assert set(bundle.manifest.files) == {*FILES, layout.ALIGNED_DECODER_FILE}
    assert (bundle.encoder_path, bundle.decoder_path) == (folder / "encoder.onnx", folder / "decoder.onnx")
    assert bundle.manifest.tokenizer.files == (TOKENIZER_FILE,)


def test_golden_sentences_are_read_as_written(folder: Path) -> None:
    golden = Bundle.open(folder).golden
    assert len(golden) == 3
    (folder / GOLDEN_FILE).write_bytes(b"")
    write_golden(folder, golden)
    assert Bundle.open(folder).golden == golden


def test_a_missing_folder_and_a_file_in_its_place_are_rejected(folder: Path) -> None:
    for path in (folder / MANIFEST_FILE, folder / "none"):
        with pytest.raises(BundleError, match=f"^{path}/"):
            Bundle.open(path)


@pytest.mark.parametrize("file", [MANIFEST_FILE, *FILES])
@pytest.mark.parametrize("put", [lambda _: None, os.mkdir, os.mkfifo], ids=["nothing", "folder", "pipe"])
def test_a_missing_file_or_what_is_in_its_place_is_named(folder: Path, file: str, put: Callable[[Path], None]) -> None:
    """At once: opening a pipe would wait for a writer."""
    (folder / file).unlink()
    put(folder / file)
    refusal(folder, file)


def flip(data: bytes, share: float) -> bytes:
    changed = bytearray(data)
    changed[int(share * (len(data) - 1))] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "damage",
    [*(lambda _: b"", lambda data: data[:-1]), *(partial(flip, share=share) for share in (0.0, 0.5, 1.0))],
    ids=["empty", "truncated", "first bit", "middle bit", "last bit"],
)
def test_one_changed_bit_is_detected(folder: Path, file: str, damage: Callable[[bytes], bytes]) -> None:
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    assert "sha256" in refusal(folder, file)


DEEP_OR_LARGE = (b"[" * 100_000, b'{"name":' * 100_000, b"9" * 100_000, b" " * (9 << 20))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", *DEEP_OR_LARGE])
def test_an_invalid_manifest_is_rejected(folder: Path, content: bytes) -> None:
    (folder / MANIFEST_FILE).write_bytes(content)
    refusal(folder)


@pytest.mark.parametrize(("key", "value"), CASES["a wrong value in the manifest is named"])
def test_a_wrong_value_in_the_manifest_is_named(folder: Path, key: str, value: object) -> None:
    change_manifest(folder, lambda manifest: manifest.update({key: value}))
    assert key in refusal(folder)


HUGE = 10**18
LONG = "x" * 200_000


@pytest.mark.parametrize(
    ("field", "change"),
    [
        *[(name, {name: HUGE}) for name in ("vocabulary_size", "max_source_tokens", "max_target_tokens", "opset")],
        *[(name, {name: 60}) for name in ("pad_id", "unk_id", "bos_id", "eos_id")],
        *[("name", {"name": name}) for name in ("", " ", "a\nb", "\x1b[31mred", "../a", "ä", "x" * 65)],
        ("description", {"description": "x" * 201}),
        ("states", {"states": [{"name": "hidden", "shape": [HUGE]}]}),
        ("states", {"states": [{"name": "hidden", "shape": [1] * 9}]}),
        ("states", {"states": [{"name": f"a{number}", "shape": [1]} for number in range(5000)]}),
        ("directions", {"directions": [{"source": "en", "target": "de", "source_prefix": [1] * 70_000}]}),
        ("directions", {"directions": [{"source": "en", "target": "de"}] * 10_001}),
        ("source_suffix", {"source_suffix": [HUGE]}),
        ("alignment_heads", {"alignment_heads": [{"layer": HUGE, "head": 0}]}),
        ("encoder.inputs", {"encoder": {"inputs": [LONG], "outputs": []}}),
        ("files", {"files": {f"a{number}": "0" * 64 for number in range(101)}}),
        ("files", {"files": {LONG: "0" * 64}}),
        ("files", {"files": {"encoder.onnx": LONG}}),
        ("tokenizer", {"tokenizer": {"kind": "sentencepiece", "model": LONG}}),
        ("shared_weights", {"shared_weights": [{"encoder_name": "a", "decoder_name": "a", "type": "int8"}] * 10_001}),
    ],
)
def test_a_value_above_its_bound_is_named_in_a_short_line(folder: Path, field: str, change: dict[str, object]) -> None:
    change_manifest(folder, lambda manifest: manifest.update({"vocabulary_size": 60, **change}))
    message = refusal(folder)
    assert field in message
    assert message.isprintable()
    assert len(message) <= MAX_CHARACTERS


@pytest.mark.parametrize("key", ["vocabulary_size", "states", "eos_id", "opset", "files", "decoder", "directions"])
def test_a_missing_value_in_the_manifest_is_named(folder: Path, key: str) -> None:
    change_manifest(folder, lambda manifest: manifest.pop(key))
    assert f"{key}: " in refusal(folder)


@pytest.mark.parametrize(("field", "value"), [*(("format_version", n) for n in range(1, 6)), ("variant", "portable")])
def test_a_bundle_of_an_earlier_version_must_be_exported_again(folder: Path, field: str, value: object) -> None:
    """Even if other fields differ as well."""
    (folder / MANIFEST_FILE).write_text(json.dumps({field: value, "heads": 8}), encoding="utf-8")
    message = refusal(folder)
    assert f": {field}: {value}: " in message
    assert "`dragoman export`" in message


def test_only_empty_ranges_of_activations_are_accepted(folder: Path) -> None:
    """Bundles of the first version with native graphs have them."""
    change_manifest(folder, lambda manifest: manifest.update(activation_ranges={}, cache_ranges={}))
    assert "activation_ranges" not in Bundle.open(folder).manifest.model_dump()
    change_manifest(folder, lambda manifest: manifest.update(activation_ranges={"inner": 1.0}))
    assert "activation_ranges: " in refusal(folder)


@pytest.mark.parametrize(("shape", "kind", "taken", "given"), CASES["the shape of a state decides its kind and names"])
def test_the_shape_of_a_state_decides_its_kind_and_names(shape: Any, kind: str, taken: str, given: str | None) -> None:
    state = StateSpec(name="x", shape=shape)
    assert (state.kind, state.decoder_input, state.decoder_output) == (kind, taken, given)


@pytest.mark.parametrize(("field", "repeated"), [("states", "annotations"), ("directions", "en-de")])
def test_states_and_directions_are_unique(folder: Path, field: str, repeated: str) -> None:
    change_manifest(folder, lambda manifest: manifest[field].append(manifest[field][0]))
    assert all(part in refusal(folder) for part in (f"{field}: ", repeated))


@pytest.mark.parametrize(("token_id", "fits"), [(0, True), (59, True), (60, False)])
def test_a_prefix_is_in_the_vocabulary(folder: Path, token_id: int, *, fits: bool) -> None:
    change_manifest(folder, lambda manifest: manifest.update(vocabulary_size=60))
    change_manifest(folder, lambda manifest: manifest["directions"][0].update(source_prefix=[5, token_id]))
    if fits:
        Bundle.open(folder)
    else:
        assert "directions: en-de: source_prefix: " in refusal(folder)


@pytest.mark.parametrize(("graph", "side", "names"), CASES["graphs that do not fit the states are rejected"])
def test_graphs_that_do_not_fit_the_states_are_rejected(folder: Path, graph: str, side: str, names: str) -> None:
    change_manifest(folder, lambda manifest: manifest[graph].update({side: names.split()}))
    assert f"{graph}.{side}: " in refusal(folder)


CACHE = CacheSpec(layers=2, heads=4, head_size=8, element="int8")


@pytest.fixture
def native(folder: Path) -> Path:
    """A bundle whose manifest describes native graphs."""
    source, target = CACHE.names("source"), CACHE.names("target")
    encoder = {"inputs": [*contract.ENCODE_INPUTS, *source], "outputs": list(map(present, source))}
    outputs = [*contract.STEP_OUTPUTS, *map(present, target)]
    decoder = {"inputs": [*contract.STEP_INPUTS, *target, *source], "outputs": outputs}
    changes = {"cache": CACHE.model_dump(), "states": [], "encoder": encoder, "decoder": decoder}
    (folder / layout.CHOOSE_FILE).write_bytes(b"graph")
    change_manifest(reseal(folder), lambda manifest: manifest.update(changes))
    return folder


def test_a_bundle_with_native_graphs_opens(native: Path) -> None:
    bundle = Bundle.open(native)
    assert bundle.manifest.cache == CACHE
    assert bundle.choose_path == native / "choose.onnx"


@pytest.mark.parametrize("file", layout.NATIVE_GRAPH_FILES)
def test_a_native_graph_without_a_hash_is_rejected(native: Path, file: str) -> None:
    change_manifest(native, lambda manifest: manifest["files"].pop(file))
    assert f"files: {file}" in refusal(native)


@pytest.mark.parametrize(("length", "tokens", "element", "shapes"), CASES["a cache has whole blocks of 16 positions"])
def test_a_cache_has_whole_blocks_of_16_positions(
    length: Length, tokens: int, element: Element, shapes: dict[str, tuple[Element, tuple[int, ...]]]
) -> None:
    expected = {name: CacheTensor(kind, tuple(sizes)) for name, (kind, sizes) in shapes.items()}
    assert CACHE.model_copy(update={"element": element}).tensors(length, tokens) == expected


def test_states_of_recurrent_units_are_floats_that_do_not_grow() -> None:
    cache = CACHE.model_copy(update={"recurrent": True})
    assert cache.tensors("target", 100) == {"target_cache": CacheTensor("float", (2, 1, 32))}
    assert cache.tensors("source", 100) == CACHE.tensors("source", 100)


@pytest.mark.parametrize(("graph", "side"), list(product(("encoder", "decoder"), ("inputs", "outputs"))))
@pytest.mark.parametrize(
    "change",
    [list.pop, lambda names: names.append("x"), lambda names: names.insert(0, names.pop())],
    ids=["missing", "more", "another order"],
)
def test_native_graphs_have_exactly_their_inputs_and_outputs(
    native: Path, graph: str, side: str, change: Callable[[list[str]], object]
) -> None:
    change_manifest(native, lambda manifest: change(manifest[graph][side]))
    assert f"{graph}.{side}: " in refusal(native)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("states", {"states": [{"name": "hidden", "shape": [8]}]}),
        ("states", {"cache": None}),
        ("encoder.inputs", {"cache": {**CACHE.model_dump(), "element": "float"}}),
        ("cache.element", {"cache": {**CACHE.model_dump(), "element": "fp16"}}),
        ("cache.heads", {"cache": {**CACHE.model_dump(), "heads": 0}}),
        ("cache.layers", {"cache": {**CACHE.model_dump(), "layers": HUGE}}),
        ("cache.color", {"cache": {**CACHE.model_dump(), "color": "green"}}),
        *[("alignment_heads", {"alignment_heads": [{"layer": layer, "head": n}]}) for layer, n in ((2, 0), (0, 4))],
    ],
)
def test_a_manifest_that_does_not_fit_its_cache_is_refused(native: Path, field: str, change: dict[str, object]) -> None:
    change_manifest(native, lambda manifest: manifest.update(change))
    assert f"{field}: " in refusal(native)


@pytest.mark.parametrize("left", [(), ("token_ids",), ("token_ids", "source_lengths"), ("positions",)])
def test_a_graph_may_lack_inputs_that_it_does_not_use(folder: Path, left: tuple[str, ...]) -> None:
    names = [*left, "annotations", "past_hidden"]
    change_manifest(folder, lambda manifest: manifest["decoder"].update(inputs=names))
    assert Bundle.open(folder).manifest.decoder.inputs == tuple(names)


@pytest.mark.parametrize("file", FILES)
def test_a_required_file_without_a_hash_is_rejected(folder: Path, file: str) -> None:
    change_manifest(folder, lambda manifest: manifest["files"].pop(file))
    assert f"files: {file}" in refusal(folder)


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "sub/x", "..", ".", "", "a\nb", "..\\x", ".hidden"])
def test_file_names_outside_the_folder_are_rejected(folder: Path, name: str) -> None:
    (folder.parent / "x").write_bytes(b"")
    change_manifest(folder, lambda manifest: manifest["files"].update({name: "0" * 64}))
    assert "files" in refusal(folder)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", ""),
        (b"{}", ""),
        (b'[{"source": "a"}]', "0.source_language"),
        (golden_json(source_ids=["x"]), "0.source_ids.0"),
        (golden_json(target_language="Deutsch"), "0.target_language"),
        (golden_json(source_language="de", target_language="en"), "0: de-en: "),
        (golden_json(source_ids=[HUGE]), "0.source_ids.0"),
        *((golden_json(source_ids=ids), "0: source_ids: ") for ids in ([60], [], [1] * 1000)),
        (golden_json(target_ids=[1] * 1000), "0: target_ids: "),
        (golden_json(target=LONG), "0.target"),
        (b"[" * 100_000, ""),
    ],
)
def test_invalid_golden_sentences_are_rejected(folder: Path, content: bytes, field: str) -> None:
    """Even if the manifest has the sha256 of the file."""
    (folder / GOLDEN_FILE).write_bytes(content)
    change_manifest(reseal(folder), lambda manifest: manifest.update(vocabulary_size=60))
    assert field in refusal(folder, GOLDEN_FILE)


def test_more_golden_sentences_than_a_load_translates_in_seconds_are_rejected(folder: Path) -> None:
    (folder / GOLDEN_FILE).write_text(json.dumps(json.loads(golden_json()) * (layout.MAX_GOLDEN_SENTENCES + 1)))
    reseal(folder)
    assert f"at most {layout.MAX_GOLDEN_SENTENCES} items" in refusal(folder, GOLDEN_FILE)


def test_an_unreadable_bundle_names_the_user_and_the_remedy(folder: Path) -> None:
    (folder / MANIFEST_FILE).chmod(0)
    user = os.geteuid()
    reader = user or 65534  # root may read everything
    os.seteuid(reader)
    try:
        assert all(part in refusal(folder) for part in (f"user {reader} ", "chmod ", str(folder)))
    finally:
        os.seteuid(user)
