"""Pairs become ids with the token of their direction, within the model's limits, and sampled by seed."""

from model.config import Direction, RunConfig, TrainingConfig, TransformerConfig
from model.data.corpus import Corpus
from model.data.segmentation import Segmentation
from model.tokenizer.tokenizer import Tokenizer

EN_DE, DE_EN = Direction(source="en", target="de"), Direction(source="de", target="en")
TEXTS = ["one two three", "garden river delta alpha beta gamma house one two", "house"]
CORPORA = [Corpus("en", "de", TEXTS, TEXTS[::-1]), Corpus("de", "en", TEXTS[:1], TEXTS[:1])]


def segment(tokenizer: Tokenizer, corpora: list[Corpus], **limits: int) -> Segmentation:
    config = RunConfig(directions=(EN_DE, DE_EN), model=TransformerConfig.model_validate(limits))
    return Segmentation(tokenizer, config, corpora)


def sampled_segmentation(tokenizer: Tokenizer, seed: int = 1) -> Segmentation:
    training = TrainingConfig(subword_sampling=0.1, seed=seed)
    return Segmentation(tokenizer, RunConfig(directions=(EN_DE, DE_EN), training=training), CORPORA)


def test_every_source_begins_with_the_token_of_its_target_language(two_way_tokenizer: Tokenizer) -> None:
    pairs = segment(two_way_tokenizer, CORPORA).most_probable
    german, english = (two_way_tokenizer.language_token(language) for language in ("de", "en"))
    assert [source[0] for source in pairs.sources] == [german, german, german, english]
    assert [two_way_tokenizer.decode(target) for target in pairs.targets] == [*TEXTS[::-1], TEXTS[0]]


def test_pairs_that_are_too_long_for_the_model_are_left_out(two_way_tokenizer: Tokenizer) -> None:
    """A source also needs room for its prefix and EOS."""
    all_pairs = segment(two_way_tokenizer, CORPORA).most_probable
    longest_source = max(map(len, all_pairs.sources)) + 1
    longest_target = max(map(len, all_pairs.targets))
    for limits, left in (
        ({"max_source_tokens": longest_source, "max_target_tokens": longest_target}, 4),
        ({"max_source_tokens": longest_source - 1}, 3),
        ({"max_target_tokens": longest_target - 1}, 3),
    ):
        assert len(segment(two_way_tokenizer, CORPORA, **limits).most_probable) == left


def test_an_epoch_without_sampling_has_the_usual_tokens(two_way_tokenizer: Tokenizer) -> None:
    segmentation = segment(two_way_tokenizer, CORPORA)
    assert segmentation.of_epoch(3) == segmentation.most_probable


def test_a_sampled_epoch_writes_the_same_text_in_another_way(two_way_tokenizer: Tokenizer) -> None:
    segmentation = sampled_segmentation(two_way_tokenizer)
    usual, sampled = segmentation.most_probable, segmentation.of_epoch(0)
    assert sampled != usual
    assert [source[0] for source in sampled.sources] == [source[0] for source in usual.sources]
    for ours, theirs in ((sampled.sources, usual.sources), (sampled.targets, usual.targets)):
        assert list(map(two_way_tokenizer.decode, ours)) == list(map(two_way_tokenizer.decode, theirs))


def test_seed_and_epoch_alone_decide_what_an_epoch_sees(two_way_tokenizer: Tokenizer) -> None:
    segmentation = sampled_segmentation(two_way_tokenizer)
    first = segmentation.of_epoch(0)
    assert segmentation.of_epoch(1) != first
    assert sampled_segmentation(two_way_tokenizer, seed=2).of_epoch(0) != first
    assert sampled_segmentation(two_way_tokenizer).of_epoch(0) == segmentation.of_epoch(0) == first
