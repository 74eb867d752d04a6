"""What the models of an offline benchmark translate: a test set as a trained model reads it, or sentences as long.

Called by `benchmarks.offline_benchmark`.
"""

import re
from collections.abc import Sequence

from benchmarks.systems.compared_model import ComparedModel
from benchmarks.systems.source_sentence import SourceSentence, draw_sentences
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.tokenizer.tokenizer import EOS_ID

SEED = 1
# Roughly what a tokenizer cuts a text into, if there is none.
WORDS = re.compile(r"\w+|[^\w\s]")


def sentences_of(models: Sequence[ComparedModel], data: str, count: int | None) -> list[list[SourceSentence]]:
    """Returns the sentences of each model.

    Args:
        models: at most one of them trained.
        data: test data, as `dragoman evaluate` takes them.
        count: so many of them; None: all.

    Raises:
        CorpusError: if they cannot be read, or a model cannot translate them.
    """
    corpus = read_corpus(data, "test")
    corpus = corpus.select(range(min(len(corpus), count or len(corpus))))
    trained = next((model for model in models if model.trained), None)
    lengths = lengths_of(corpus, trained)
    return [trained_sentences(model, corpus) if model.trained else random_sentences(model, lengths) for model in models]


def trained_sentences(model: ComparedModel, corpus: Corpus) -> list[SourceSentence]:
    """Returns the sentences of a test set, whose translations end when the model ends them.

    Raises:
        CorpusError: if the model cannot translate them.
    """
    longest = model.model.config.max_target_tokens
    return [SourceSentence(source_ids, 0, longest) for source_ids in model.source_ids(corpus)]


def random_sentences(model: ComparedModel, lengths: Sequence[tuple[int, int]]) -> list[SourceSentence]:
    """Returns sentences without meaning whose translations get the lengths that are given.

    Raises:
        CorpusError: if one is too long for the model.
    """
    limits = model.model.config
    for number, (source, target) in enumerate(lengths, start=1):
        for side, tokens, most in (
            ("source", source, limits.max_source_tokens),
            ("target", target, limits.max_target_tokens),
        ):
            if tokens > most:
                problem = f"sentence {number}: {tokens} {side} tokens, expected at most {most}"
                raise CorpusError(f"{problem}: see --random.max-{side}-tokens")
    return draw_sentences(SEED, lengths, model.model.vocabulary_size, EOS_ID)


def lengths_of(corpus: Corpus, model: ComparedModel | None) -> list[tuple[int, int]]:
    """Returns the lengths of each pair: source tokens, the end token included, and target tokens without it.

    Args:
        corpus: the pairs.
        model: whose tokens are counted; None: words and punctuation are.

    Raises:
        CorpusError: if the model cannot translate them.
    """
    if model is None:
        return [
            (len(WORDS.findall(source)) + 1, max(1, len(WORDS.findall(target))))
            for source, target in zip(corpus.sources, corpus.targets, strict=True)
        ]
    return [
        (len(source_ids), max(1, len(model.exportable.tokenizer.encode(target))))
        for source_ids, target in zip(model.source_ids(corpus), corpus.targets, strict=True)
    ]
