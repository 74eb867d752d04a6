"""Compares the bundle of a further training with the initial model: on the new domain, and on that of the model."""

from pathlib import Path

from pydantic import ValidationError
from tqdm import tqdm

from dragoman.export.evaluate.command import evaluate, format_evaluations
from dragoman.export.evaluate.service_systems import open_bundle_system
from dragoman.export.evaluate.system import Search
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import RunError, first_problem
from dragoman.model.training.before import BEFORE
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.directions import directions_of


def find_loss(before: Path, bundle: Path) -> str | None:
    """Prints the scores of a bundle and those of the initial model.

    Returns what is worse, by a lower BLEU; None: the bundle is not worse on all text. `before` is the file of the run.
    Raises RunError if the file is damaged.
    """
    try:
        stored = BEFORE.validate_json(before.read_bytes())
    except ValidationError as error:
        raise RunError(f"{before}: damaged: {first_problem(error)}") from error
    known = directions_of(Bundle.open(bundle).manifest)
    parts = [part for part in stored if part.sources and known.find(part.source_language, part.target_language)]
    corpora = [Corpus(part.source_language, part.target_language, part.sources, part.targets) for part in parts]
    with tqdm(total=sum(map(len, corpora)), desc="comparing", unit=" sentences", disable=None) as progress:
        translations = open_bundle_system(bundle, Search()).translate(corpora, progress)
    losses = []
    for part, corpus, ours in zip(parts, corpora, translations, strict=True):
        found = evaluate(corpus, ours, part.translations, literature=False)
        print(f"\n{part.domain}; the baseline is the initial model\n\n{format_evaluations([found])}")
        if found.baseline is not None and found.system.bleu < found.baseline.bleu:
            scores = f"{found.system.bleu:.2f} instead of {found.baseline.bleu:.2f} BLEU"
            losses.append(f"{scores} on {part.domain}, {found.direction}")
    return ", ".join(losses) if len(losses) == len(parts) and losses else None
