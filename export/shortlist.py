"""Makes the shortlist of a model from sentence pairs: the likely target tokens of each source token.

IBM Model 1 (Brown et al. 1993, section 4) learns the probability of a target token given a source token by expectation
maximization, from the pairs alone. Every source ends with the same token; its entry has the most frequent target tokens
in addition, so that every list has them in any order of ids.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.export.source_model import Exportable, find_direction
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import RunError
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.shortlist import Shortlist

# Tokens that every list has, and likely ones of a source token; half of these for each of several directions.
FREQUENT, BEST = 100, 100
ITERATIONS = 5
# Pairs of a source and a target token of a sentence pair, 50 bytes each. A direction with more is thinned out evenly.
MAX_TOKEN_PAIRS = 30_000_000

Ids = NDArray[np.int64]


class Pair(NamedTuple):
    """The tokens of a source and of its translation."""

    source: Ids
    target: Ids


def make_shortlist(exportable: Exportable, corpora: Sequence[Corpus]) -> Shortlist:
    """Returns the shortlist of a model by translations of its directions.

    A source token of a vocabulary that both sides share is a candidate itself.

    Raises CorpusError if a corpus has other languages than the model; RunError if sources of the model have no common
    end, or the corpora no tokens.
    """
    if not exportable.source_suffix:
        raise RunError("shortlist: expected a model whose sources end with a token")
    tokens, shared = exportable.model.vocabulary_size, isinstance(exportable.tokenizer, Tokenizer)
    entries, counts = [[token] if shared else [] for token in range(tokens)], np.zeros(tokens)
    directions = {one.languages: [each for each in corpora if each.languages == one.languages] for one in corpora}
    for parts in directions.values():
        pairs = _read_pairs(exportable, parts)
        keys, probabilities = learn(pairs, tokens)
        order = np.lexsort((-probabilities, keys // tokens))
        sources, targets = keys[order] // tokens, keys[order] % tokens
        kept = np.arange(len(sources)) - np.searchsorted(sources, sources) < BEST // min(2, len(directions))
        for source, target in zip(sources[kept].tolist(), targets[kept].tolist(), strict=True):
            entries[source].append(target)
        counts += np.bincount(np.concatenate([pair.target for pair in pairs]), minlength=tokens)
    entries[exportable.source_suffix[-1]] += [token for token in np.argsort(-counts)[:FREQUENT] if counts[token]]
    return Shortlist.of(0, entries)


def _read_pairs(exportable: Exportable, corpora: Sequence[Corpus]) -> list[Pair]:
    """Returns the pairs in tokens, of a source the distinct ones; evenly spread ones of a large corpus."""
    pairs = []
    for corpus in corpora:
        prefix = find_direction(exportable, corpus.languages).source_prefix
        for source, target in zip(corpus.sources, corpus.targets, strict=True):
            target_ids = np.array(exportable.tokenizer.encode_target(target), np.int64)
            pairs.append(Pair(np.unique(exportable.source_ids(prefix, source)), target_ids))
    token_pairs = sum(len(pair.source) * len(pair.target) for pair in pairs)
    if not token_pairs:
        raise RunError("shortlist: expected sentence pairs, got none")
    return pairs[:: -(-token_pairs // MAX_TOKEN_PAIRS)]


def learn(pairs: Sequence[Pair], tokens: int) -> tuple[Ids, NDArray[np.float64]]:
    """Returns the tokens that occur together, ascending, and the probability of the target given the source, each [K].

    Two tokens are one number, source * tokens + target.
    """
    # All pairs of a source token and an occurrence of a target token, N in total.
    all_keys = np.concatenate([(pair.source * tokens + pair.target[:, None]).ravel() for pair in pairs])
    lengths = np.concatenate([np.full(len(pair.target), len(pair.source)) for pair in pairs])
    occurrences = np.repeat(np.arange(len(lengths)), lengths)  # [N]
    keys, places = np.unique(all_keys, return_inverse=True)  # [K], [N]
    sources = keys // tokens
    probabilities = np.ones(len(keys))
    for _ in range(ITERATIONS):
        shares = probabilities[places]
        shares /= np.bincount(occurrences, shares)[occurrences]
        counts = np.bincount(places, shares)
        probabilities = counts / np.bincount(sources, counts)[sources]
    return keys, probabilities
