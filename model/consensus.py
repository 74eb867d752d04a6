"""`dragoman consensus`: of several translations of each line, the one that is most like the others.

This is minimum Bayes risk decoding (Kumar and Byrne 2004, "Minimum Bayes-Risk Decoding for Statistical Machine
Translation") over the translations of several models, whose loss is 1 - sentence BLEU.
"""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from sacrebleu.metrics.bleu import BLEU
from tqdm import tqdm

from dragoman.model.data.corpus import read_lines
from dragoman.model.output_file import check_output, write_output
from dragoman.model.scoring import bleu_metric

LINES_OF_TASK = 200


class ConsensusCommand(BaseSettings):
    """Writes, for each line, the translation that is most like the others. Lines of all files belong together."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_CONSENSUS_", frozen=True, extra="forbid")

    translations: CliPositionalArg[list[Path]] = Field(
        min_length=2, description="files of translations, or of references, with a sentence per line"
    )
    language: str = Field(
        "", description="ISO 639 code; decides how the words of Chinese, Japanese or Thai are counted"
    )
    output: Path = Field(description="file of the chosen translations")

    def cli_cmd(self) -> None:
        """Reads the files, chooses line by line, and writes the output."""
        check_output("consensus", "output", self.output)
        files = [read_lines(path) for path in self.translations]
        for path, lines in zip(self.translations, files, strict=True):
            if len(lines) != len(files[0]):
                raise SystemExit(
                    f"dragoman consensus: {path}: expected {len(files[0]):,} lines, as {self.translations[0]} has, "
                    f"got {len(lines):,}"
                )
        # Processes are spawned: a fork of a process with threads can wait forever for a lock of theirs.
        processes = ProcessPoolExecutor(mp_context=get_context("spawn"))
        try:
            choose_line = partial(choose, language=self.language)
            with _interrupts_blocked():
                chosen = processes.map(choose_line, zip(*files, strict=True), chunksize=LINES_OF_TASK)
            text = "".join(f"{line}\n" for line in tqdm(chosen, "choosing", len(files[0]), unit=" lines", disable=None))
        finally:
            processes.shutdown(cancel_futures=True)
        write_output(self.output, text)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delays Ctrl-C; processes that the block starts never get it, so that only the command itself answers it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def choose(translations: Sequence[str], language: str = "") -> str:
    """Returns the translation with the highest mean sentence BLEU against all of them, the first of equal ones.

    `language` is their ISO 639 code; if omitted, their words are separated by blanks.
    """
    counts = Counter(translations)
    if len(counts) == 1:
        return translations[0]
    similarity = partial(_similarity, _metric(language))
    return max(counts, key=lambda candidate: sum(n * similarity(candidate, other) for other, n in counts.items()))


@cache
def _metric(language: str) -> BLEU:
    return bleu_metric(language, of_sentences=True)


def _similarity(metric: BLEU, translation: str, reference: str) -> float:
    return 100.0 if translation == reference else metric.sentence_score(translation, [reference]).score
