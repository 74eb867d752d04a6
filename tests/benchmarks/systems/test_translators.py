"""All systems of the offline benchmark return the same tokens, as many as requested."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from benchmarks.systems.compared_model import random_model
from benchmarks.systems.ctranslate2_system import CTranslate2Translator, spec_of, write_model
from benchmarks.systems.engine_system import EngineKind, EngineTranslator
from benchmarks.systems.marian_system import draw_sources
from benchmarks.systems.pytorch_system import PyTorchTranslator, write_checkpoint
from benchmarks.systems.translating import Batching, SourceSentence, Translator, draw_sentences
from dragoman.model.config import TransformerConfig
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.tokenizer.tokenizer import EOS_ID
from tests.support.toy import toy_test_sentences

SENTENCES = 60
BATCHING = Batching(8, "examples")
ENGINES: tuple[EngineKind, ...] = ("dragoman", "dragoman-loop")
SYSTEMS = (*ENGINES, "ctranslate2", "pytorch")


@pytest.fixture(scope="module", name="trained")
def _trained(toy_run: RunFolder) -> TrainedModel:
    return toy_run.load()


@pytest.fixture(scope="module", name="translators")
def _translators(
    trained: TrainedModel, toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Translator]]:
    assert isinstance(trained.model, Transformer)
    folder = tmp_path_factory.mktemp("systems")
    write_model(folder / "ctranslate2", spec_of(trained.model, trained.tokenizer.source_pieces))
    write_checkpoint(folder / "checkpoint", trained.model)
    with ExitStack() as stack:
        engines = [EngineTranslator(str(toy_bundle), copies=2, threads=1, slots=8, engine=kind) for kind in ENGINES]
        yield {
            **{kind: stack.enter_context(closing(engine)) for kind, engine in zip(ENGINES, engines, strict=True)},
            "ctranslate2": CTranslate2Translator(str(folder / "ctranslate2"), 2, 1, "float32"),
            "pytorch": PyTorchTranslator(str(folder / "checkpoint"), 1, 1),
        }


def translate(translator: Translator, sentences: list[SourceSentence], beam_size: int) -> list[list[int]]:
    return [list(target) for target in translator.translate(sentences, beam_size, BATCHING)]


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_trained_model_translates_alike_in_every_system(
    system: str, beam_size: int, translators: dict[str, Translator], trained: TrainedModel
) -> None:
    limit, texts = trained.model.limits.max_target_tokens, toy_test_sentences()[:SENTENCES]
    sentences = [SourceSentence((*trained.tokenizer.encode(text), EOS_ID), 0, limit) for text in texts]
    expected = translate(translators["ctranslate2"], sentences, beam_size)
    assert translate(translators[system], sentences, beam_size) == expected
    assert len({len(target) for target in expected}) > 3


@pytest.mark.parametrize("kind", ENGINES)
def test_a_batching_sets_the_rows_of_an_engine(
    kind: EngineKind, translators: dict[str, Translator], trained: TrainedModel
) -> None:
    sentences = draw_sentences(1, [(5, 9)] * 12, trained.tokenizer.vocabulary_size, EOS_ID)
    engine = translators[kind]
    assert isinstance(engine, EngineTranslator)
    expected = engine.translate(sentences, 2, BATCHING)
    for rows in (4, 16, 4):
        assert engine.translate(sentences, 2, Batching(rows, "rows")) == expected
        assert engine._slots == rows


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_translation_has_the_requested_length(
    system: str, beam_size: int, translators: dict[str, Translator], trained: TrainedModel
) -> None:
    """Even if the model would end earlier or later."""
    lengths = [(2 + number % 9, 1 + 7 * number % 20) for number in range(SENTENCES)]
    sentences = draw_sentences(1, lengths, trained.tokenizer.vocabulary_size, EOS_ID)
    found = translate(translators[system], sentences, beam_size)
    assert [len(target) for target in found] == [target for _, target in lengths]
    assert found == translate(translators["ctranslate2"], sentences, beam_size)


def test_a_bundle_with_a_shortlist_gives_only_its_tokens(tmp_path: Path) -> None:
    shape = {"d_model": 32, "d_ff": 48, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "decoder_memory": "ssru"}
    made = random_model(TransformerConfig.model_validate(shape), 4800, marian=True)
    made.write(tmp_path / "m", "dragoman", "int8", "shortlist")
    sentences, shortlist = draw_sources(20, 4800), made.exportable.shortlist
    with closing(EngineTranslator(str(tmp_path / "m"), copies=1, threads=1, slots=8)) as engine:
        targets = translate(engine, sentences, 1)
    assert shortlist is not None
    for sentence, target in zip(sentences, targets, strict=True):
        assert {*target} <= {*shortlist.candidates(sentence.source_ids, (EOS_ID,))}
