"""A trained model gets the sentences themselves; a random one gets others of the same lengths."""

from itertools import islice

import pytest

from benchmarks.systems.compared_model import ComparedModel, lengths_of, made_up_tokenizer, made_up_words, random_model
from benchmarks.systems.translating import draw_sentences
from dragoman.model.config import TransformerConfig
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import CorpusError
from dragoman.model.tokenizer.tokenizer import EOS_ID, UNK_ID

SHAPE = {"d_model": 16, "d_ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
CORPUS = Corpus("en", "de", ["aaab aaac", "aaad"], ["aaae", "aaaf aaag aaah"])


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
    sentences = model.sentences(CORPUS)
    assert [(len(sentence.source_ids), *sentence.limits) for sentence in sentences] == [(3, 0, 6), (2, 0, 6)]
    assert sentences[0].source_ids == (*model.exportable.tokenizer.encode("aaab aaac"), model.model.eos_id)


@pytest.mark.parametrize(("lengths", "side"), [((6, 1), "source"), ((1, 7), "target")])
def test_a_sentence_that_is_too_long_is_rejected(model: ComparedModel, lengths: tuple[int, int], side: str) -> None:
    assert model.checked(fitting := draw_sentences(1, [(3, 1), (5, 6)], 50, EOS_ID)) == fitting
    with pytest.raises(CorpusError, match=f"^sentence 2: {max(lengths)} tokens: .* max_{side}_tokens$"):
        model.checked(draw_sentences(1, [(1, 1), lengths], 50, EOS_ID))


@pytest.mark.parametrize("size", [9, 1000, 32_000])
def test_a_made_up_vocabulary_has_the_requested_size(size: int) -> None:
    pieces = made_up_tokenizer(size).source_pieces
    assert len(set(pieces)) == len(pieces) == size


def test_made_up_words_become_tokens_and_tokens_words() -> None:
    tokenizer = made_up_tokenizer(1000)
    words = list(islice(made_up_words(), 996))
    text = f"{words[0]} {words[995]}"
    assert tokenizer.encode(text) == [4, 999]
    assert tokenizer.decode([4, 999]) == text
    assert UNK_ID in tokenizer.encode("!")
