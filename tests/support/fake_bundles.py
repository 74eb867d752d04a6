"""Bundles of fake models: real manifests, tokenizers and golden sentences, and graphs that are never opened."""

from itertools import product
from pathlib import Path
from shutil import rmtree

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import (
    ALIGNED_DECODER_FILE,
    GRAPH_FILES,
    WEIGHTS_FILE,
    Bundle,
    file_hashes,
    write_golden,
    write_manifest,
)
from dragoman.serve.bundle.manifest import AttentionHead, BundleDirection, GoldenSentence
from dragoman.serve.settings import ServeSettings
from tests.support.fakes import EOS_ID, ONE_DIRECTION, FakeModel, fake_manifest, translate

MAX_SOURCE_TOKENS = 60
MAX_TARGET_TOKENS = 20
# The fake model takes many steps to translate this.
LONG_TEXT = "gamma beta."
GOLDEN = ("alpha beta gamma.", LONG_TEXT, "house garden river.")


def write_bundle(
    folder: Path,
    tokenizer: Tokenizer,
    golden: tuple[GoldenSentence, ...] | None = None,
    directions: tuple[BundleDirection, ...] = ONE_DIRECTION,
    alignment_heads: tuple[AttentionHead, ...] = (),
) -> Path:
    """Writes a bundle for the fake model into an empty folder and returns the folder."""
    (folder / "tokenizer.model").write_bytes(tokenizer.model)
    for name in (*GRAPH_FILES, ALIGNED_DECODER_FILE, WEIGHTS_FILE):
        (folder / name).write_bytes(b"never opened")
    write_golden(folder, make_golden(tokenizer, directions) if golden is None else golden)
    manifest = fake_manifest(
        MAX_TARGET_TOKENS,
        vocabulary_size=tokenizer.vocabulary_size,
        max_source_tokens=MAX_SOURCE_TOKENS,
        directions=directions,
        alignment_heads=alignment_heads,
        files=dict(file_hashes(folder)),
    )
    write_manifest(folder, manifest)
    return folder


def direction(text: str, *source_prefix: int) -> BundleDirection:
    """Returns a direction from "en-de"; the fake model translates each prefix differently."""
    source, _, target = text.partition("-")
    return BundleDirection(source=source, target=target, source_prefix=source_prefix)


def put_bundle(
    folder: Path, tokenizer: Tokenizer, *directions: BundleDirection, wrong: bool = False, aligned: bool = False
) -> Path:
    """Replaces the bundle of a folder by renaming, as an operator should; if `wrong`, by one with a wrong sentence."""
    new = folder.with_name(f".{folder.name}.new")
    new.mkdir(parents=True)
    golden = make_golden(tokenizer, directions)
    if wrong:
        golden = (golden[0].model_copy(update={"target_ids": (5,)}), *golden[1:])
    write_bundle(new, tokenizer, golden, directions, (AttentionHead(layer=0, head=0),) if aligned else ())
    if folder.exists():
        rmtree(folder)
    return new.rename(folder)


def load_fakes(settings: ServeSettings, _: Bundle) -> list[FakeModel]:
    return [FakeModel(settings.slots) for _ in range(settings.engine_count)]


def make_golden(
    tokenizer: Tokenizer, directions: tuple[BundleDirection, ...] = ONE_DIRECTION
) -> tuple[GoldenSentence, ...]:
    """Returns golden sentences of the fake model, the same for each direction."""
    golden = []
    for direction, source in product(directions, GOLDEN):
        source_ids = (*direction.source_prefix, *tokenizer.encode(source), EOS_ID)
        target_ids, _, _ = translate(source_ids, MAX_TARGET_TOKENS)
        sentence = GoldenSentence(
            source_language=direction.source,
            target_language=direction.target,
            source=source,
            source_ids=source_ids,
            target_ids=target_ids,
            target=tokenizer.decode(target_ids),
        )
        golden.append(sentence)
    return tuple(golden)
