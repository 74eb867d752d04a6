"""Pairs become ids with the token of their direction, within the model's limits, and sampled by seed."""

from itertools import permutations, product

from dragoman.model.config import Direction, RunConfig, TrainingConfig, TransformerConfig
from dragoman.model.data.corpus import Corpus
from dragoman.model.data.segmentation import Segmentation
from dragoman.model.tokenizer.tokenizer import WORD_START, Tokenizer

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


def tokens_of_words(tokenizer: Tokenizer, ids: list[int]) -> list[list[int]]:
    """Returns the places of the tokens of each word; a token before the first word belongs to none."""
    words: list[list[int]] = []
    for place, piece in enumerate(tokenizer.pieces(ids)):
        if piece.startswith(WORD_START):
            words.append([])
        if words:
            words[-1].append(place)
    return words


def test_links_of_words_are_links_of_tokens_in_every_segmentation(two_way_tokenizer: Tokenizer) -> None:
    """The token of the target language has no word."""
    linked = [Corpus("en", "de", ["one two"], ["two one"], links=[frozenset({(0, 1), (1, 0)})]), CORPORA[1]]
    training = TrainingConfig(subword_sampling=0.1)
    segmentation = Segmentation(two_way_tokenizer, RunConfig(directions=(EN_DE, DE_EN), training=training), linked)
    for epoch in range(5):
        pairs = segmentation.of_epoch(epoch)
        source, target = (tokens_of_words(two_way_tokenizer, side[0]) for side in (pairs.sources, pairs.targets))
        assert sorted(pairs.links[0]) == sorted([*product(source[0], target[1]), *product(source[1], target[0])])
        assert pairs.links[1] == []


def test_a_temperature_makes_small_directions_larger(two_way_tokenizer: Tokenizer) -> None:
    """90 and 10 pairs at temperature 2: sqrt(90) / (sqrt(90) + sqrt(10)) = 3/4, in total as many as before."""
    words = ["one", "two", "three", "garden", "river", "delta", "alpha", "beta", "gamma", "house"]
    pairs = [" ".join(pair) for pair in permutations(words, 2)]
    corpora = [Corpus("en", "de", pairs, pairs), Corpus("de", "en", words, words)]
    training = TrainingConfig(direction_temperature=2)
    segmentation = Segmentation(two_way_tokenizer, RunConfig(directions=(EN_DE, DE_EN), training=training), corpora)
    german = two_way_tokenizer.language_token("de")
    epochs = [segmentation.of_epoch(epoch).sources for epoch in range(4)]
    for sources in epochs:
        large = [tuple(source) for source in sources if source[0] == german]
        small = [tuple(source) for source in sources if source[0] != german]
        assert (len(large), len(set(large)), len(small), len(set(small))) == (75, 75, 25, 10)
        assert {small.count(source) for source in small} == {2, 3}
    assert epochs[0] != epochs[1]
    assert segmentation.of_epoch(0).sources == epochs[0]
    assert len(segmentation.most_probable) == 100
