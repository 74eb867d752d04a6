"""An imported multilingual checkpoint generates the tokens that `transformers` generates, in every direction."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.imports.common import ImportOptions
from export.imports.golden import golden_samples
from export.imports.hugging_face import import_checkpoint
from export.make_bundle import BundleOptions, write_bundle
from export.verify.sync_engine import SyncEngine
from serve.bundle.bundle import Bundle
from serve.bundle.directions import directions_of
from serve.bundle.tokenizer import load_tokenizer
from serve.runtime.sessions import load_sessions
from serve.scheduler.sequence import SequenceSpec
from serve.search.options import SearchOptions
from tests.support.comparisons import ignore
from tests.support.marian import make_texts
from tests.support.multilingual import generate, write_m2m100, write_nllb

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers", "ignore::UserWarning:transformers")
LIMIT = 20
TEXTS = make_texts(5, 50)
OPTIONS = ImportOptions(max_source_tokens=40, max_target_tokens=LIMIT + 1)


def small100(folder: Path) -> Any:
    return write_m2m100(folder, settings={"tokenizer_class": "SMALL100Tokenizer"}, encoder_layers=3, decoder_layers=1)


WRITERS: dict[str, Callable[[Path], Any]] = {"m2m100": write_m2m100, "nllb": write_nllb, "small100": small100}


def translate(bundle: Bundle, languages: tuple[str, str], beam_size: int) -> tuple[list[tuple[int, ...]], Any, Any]:
    """Returns the translations of a bundle's engine without start tokens, the sources and the direction."""
    direction = directions_of(bundle.manifest).find(*languages)
    assert direction is not None
    tokenizer = load_tokenizer(bundle)
    sources = [(*direction.source_prefix, *tokenizer.encode(text), *bundle.manifest.source_suffix) for text in TEXTS]
    starts = len(direction.start)
    options = SearchOptions(
        max_target_tokens=LIMIT + starts, beam_size=beam_size, target_prefix=direction.start, start_tokens=starts
    )
    engine = SyncEngine(load_sessions(bundle, threads=1), 50)
    answers = engine.translate([SequenceSpec(source, options) for source in sources], 50 // beam_size, ignore)
    return [answer.target_ids[starts:] for answer in answers], sources, direction


@pytest.mark.parametrize("kind", WRITERS)
def test_every_token_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    model = WRITERS[kind](tmp_path / "m")
    exportable = import_checkpoint(tmp_path / "m", OPTIONS)
    bundle = write_bundle(exportable, golden_samples(exportable), tmp_path / "bundle", BundleOptions("many"))
    for languages in (("en", "de"), ("deu_Latn", "zho_Hant" if kind == "nllb" else "zh")):
        for beam_size in (1, 4):
            ours, sources, direction = translate(bundle, languages, beam_size)
            first = direction.start[0] if direction.start else None
            assert ours == generate(model, sources, beam_size, LIMIT, first)
            assert len(set(ours)) > len(TEXTS) / 4, "otherwise the translations tell nothing"
