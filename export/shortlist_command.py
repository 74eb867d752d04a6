"""`dragoman shortlist`: measures the shortlist of a bundle on held-out text, and sets whether it is the default."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import eq
from pathlib import Path

import numpy as np
from pydantic_settings import SettingsConfigDict

from dragoman.export.held_out import MIN_PAIRS, HeldOutCommand, translate_corpus
from dragoman.model.data.corpus import Corpus, read_corpora
from dragoman.model.errors import CorpusError
from dragoman.model.scoring import Quality, score
from dragoman.model.text_table import format_table
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.manifest import ShortlistSpec
from dragoman.serve.bundle.shortlist import Shortlist
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.translation.response import Translation

# The largest loss of BLEU and of chrF with which a shortlist is the default.
MAX_LOSS = 0.1


class ShortlistCommand(HeldOutCommand):
    """Measures the shortlist of a bundle by sentence pairs that its model has not learned, and sets its default.

    Translates as the bundle's server does, without the shortlist and with it. Requests use the shortlist by default if
    BLEU and chrF lose at most 0.1 in each direction. Prints both scores, the share of sentences with the same
    translation, the recall (the share of tokens of translations without the shortlist that it has), and the mean number
    of candidates. Writes them into the manifest.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_SHORTLIST_", frozen=True, extra="forbid")

    def cli_cmd(self) -> None:
        """Translates, prints the measurement and writes it."""
        bundle = Bundle.open(self.bundle)
        shortlist = bundle.shortlist()
        if shortlist is None:
            raise BundleError(f"{self.bundle}: no shortlist, expected a bundle of `dragoman export --shortlist`")
        corpora = read_corpora(self.data, self.split, self.multi30k_folder)
        fewest = min(map(len, corpora))
        if fewest < MIN_PAIRS:
            raise CorpusError(f"data: expected at least {MIN_PAIRS} pairs of each direction, got {fewest}")
        measured = asyncio.run(_measure(_Lists(bundle, shortlist), bundle.folder, corpora))
        found = _joined(shortlist, measured)
        print(f"{_format(measured)}\n\nThe shortlist is {'on' if found.default else 'off'} by default.")
        self.write(bundle.manifest.model_copy(update={"shortlist": found}))


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measurement of a direction, without the shortlist and with it."""

    direction: str
    sentences: int
    before: Quality
    after: Quality
    equal: float
    recall: float
    candidates: float


def _format(measured: Sequence[_Measured]) -> str:
    rows = [["direction", "sentences", "BLEU", "with list", "chrF", "with list", "equal", "recall", "candidates"]]
    for part in measured:
        scores = (part.before.bleu, part.after.bleu, part.before.chrf, part.after.chrf)
        shares = [f"{part.equal:.1%}", f"{part.recall:.2%}", f"{part.candidates:,.0f}"]
        rows.append([part.direction, f"{part.sentences:,}", *(f"{score:.2f}" for score in scores), *shares])
    return format_table(rows, 1)


def _joined(shortlist: Shortlist, measured: Sequence[_Measured]) -> ShortlistSpec:
    """Returns the worst change of each score, and the means of the rest over all sentences."""
    sentences = [part.sentences for part in measured]
    bleu = min(part.after.bleu - part.before.bleu for part in measured)
    chrf = min(part.after.chrf - part.before.chrf for part in measured)
    equal, recall, candidates = (
        float(np.average([getattr(part, name) for part in measured], weights=sentences))
        for name in ("equal", "recall", "candidates")
    )
    return ShortlistSpec(
        frequent=shortlist.frequent,
        best=shortlist.best,
        default=min(bleu, chrf) >= -MAX_LOSS,
        sentences=sum(sentences),
        recall=recall,
        candidates=candidates,
        bleu=bleu,
        chrf=chrf,
        equal=equal,
    )


async def _measure(lists: "_Lists", folder: Path, corpora: Sequence[Corpus]) -> list[_Measured]:
    async with LocalTranslator(folder) as translator:
        return [await _measure_corpus(translator, lists, corpus) for corpus in corpora]


async def _measure_corpus(translator: LocalTranslator, lists: "_Lists", corpus: Corpus) -> _Measured:
    source, target = corpus.languages
    without, listed = [
        await translate_corpus(translator, corpus, token_scores=True, shortlist=shortlist)
        for shortlist in (False, True)
    ]
    texts, others = ([translation.text for translation in found] for found in (without, listed))
    before, after = (score(found, corpus.targets, [target] * len(corpus)) for found in (texts, others))
    equal = sum(map(eq, texts, others)) / len(corpus)
    candidates, tokens, hits = np.sum(list(map(lists.compare, repeat(corpus), corpus.sources, without)), axis=0)
    return _Measured(
        f"{source}-{target}",
        len(corpus),
        before,
        after,
        equal,
        float(hits / max(tokens, 1)),
        float(candidates / len(corpus)),
    )


class _Lists:
    def __init__(self, bundle: Bundle, shortlist: Shortlist) -> None:
        """Loads the tokenizer of the bundle."""
        self._shortlist = shortlist
        self._manifest = bundle.manifest
        self._directions = directions_of(bundle.manifest)
        self._tokenizer = load_tokenizer(bundle)
        self._ids = {piece: token for token, piece in enumerate(self._tokenizer.target_pieces)}

    def compare(self, corpus: Corpus, text: str, translation: Translation) -> tuple[int, int, int]:
        """Returns the number of candidates, of tokens of a translation, and of those that are candidates."""
        direction = self._directions.find(*corpus.languages)
        prefix = () if direction is None else direction.source_prefix
        source_ids = (*prefix, *self._tokenizer.encode(text), *self._manifest.source_suffix)
        candidates = set(self._shortlist.candidates(source_ids, (self._manifest.eos_id,)).tolist())
        tokens = [self._ids[token.piece] for token in translation.tokens or ()]
        return len(candidates), len(tokens), sum(token in candidates for token in tokens)
