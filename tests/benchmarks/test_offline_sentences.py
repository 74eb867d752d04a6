"""A trained model gets the sentences themselves; a random one gets others of the same lengths."""

import pytest

from benchmarks.offline_results import lengths_of, random_sentences, trained_sentences
from benchmarks.systems.compared_model import ComparedModel, random_model
from model.config import TransformerConfig
from model.data.corpus import Corpus, CorpusError

SHAPE = {"d_model": 16, "d_ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
CORPUS = Corpus("en", "de", ["baaa caaa", "daaa"], ["eaaa", "faaa gaaa haaa"])


@pytest.fixture(scope="module", name="model")
def _model() -> ComparedModel:
    config = TransformerConfig.model_validate({**SHAPE, "max_source_tokens": 5, "max_target_tokens": 6})
    return random_model(config, 50)


def test_without_a_tokenizer_words_and_punctuation_are_counted() -> None:
    corpus = Corpus("en", "de", ["Is it 5 o'clock?", "No."], ["Ja!", "Nein, es ist zwei."])
    assert lengths_of(corpus, None) == [(8, 2), (3, 6)]


def test_with_a_model_its_tokens_are_counted(model: ComparedModel) -> None:
    assert lengths_of(CORPUS, model) == [(3, 1), (2, 3)]


def test_a_trained_model_ends_its_translations_itself(model: ComparedModel) -> None:
    sentences = trained_sentences(model, CORPUS)
    assert [(len(each.source_ids), *each.limits) for each in sentences] == [(3, 0, 6), (2, 0, 6)]
    assert sentences[0].source_ids == (*model.exportable.tokenizer.encode("baaa caaa"), model.model.eos_id)


def test_a_random_model_gets_sentences_of_the_same_lengths(model: ComparedModel) -> None:
    sentences = random_sentences(model, [(3, 1), (5, 6)])
    assert [(len(each.source_ids), *each.limits) for each in sentences] == [(3, 1, 1), (5, 6, 6)]


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ((6, 1), "sentence 2: 6 source tokens, expected at most 5: see --random.max-source-tokens"),
        ((1, 7), "sentence 2: 7 target tokens, expected at most 6: see --random.max-target-tokens"),
    ],
)
def test_a_sentence_that_is_too_long_is_rejected(model: ComparedModel, lengths: tuple[int, int], problem: str) -> None:
    with pytest.raises(CorpusError) as refused:
        random_sentences(model, [(1, 1), lengths])
    assert str(refused.value) == problem
