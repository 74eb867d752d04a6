"""Trains a tiny model for the test suites of other servers' clients, and writes its bundle.

Arguments: the folder of the run, the folder of the bundle, and a table of one phrase in many languages, with the code
of a language and the phrase per line. The model translates the phrase from English into each language and back, and a
few sentences of `sentences.tsv`.
"""

import sys
from pathlib import Path

from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction, RunConfig, TokenizerConfig, TrainingConfig, TransformerConfig
from dragoman.model.data.cleaning import CleanedCorpus, Reason, TrainingData
from dragoman.model.data.corpus import Corpus
from dragoman.model.run import RunFolder
from dragoman.model.samples import Sample
from dragoman.model.training.train import train
from dragoman.serve.bundle.manifest import AttentionHead

SENTENCES = Path(__file__).parent / "sentences.tsv"
ENGLISH = "en"
# A pair is seen often, because the training has few.
REPEATED = 20
NOTHING_DROPPED = dict.fromkeys(Reason, 0)
Pairs = dict[tuple[str, str], dict[str, str]]


def read_phrases(path: Path) -> dict[str, str]:
    """Returns the phrase by the code of its language; regions of a language have one."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {code.partition("-")[0].lower(): phrase for code, phrase in rows}


def make_pairs(phrases: dict[str, str]) -> Pairs:
    """Returns the translations of each direction: the phrase in some forms, and the sentences."""
    pairs: Pairs = {}
    english = phrases.pop(ENGLISH)
    for code, phrase in phrases.items():
        for source, target, text, translation in ((ENGLISH, code, english, phrase), (code, ENGLISH, phrase, english)):
            # The form of the translation does not depend on that of the text: German nouns begin with a capital.
            forms = {text: translation, f"{text}.": f"{translation}.", text.capitalize(): translation}
            pairs[source, target] = forms
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        source, target, text, translation = line.split("\t")
        pairs.setdefault((source.lower(), target.lower()), {})[text] = translation
    return pairs


def make_config(pairs: Pairs, *, vocabulary_size: int = 700, max_steps: int = 400) -> RunConfig:
    """Returns the configuration of a model that learns its data by heart."""
    return RunConfig(
        directions=tuple(Direction(source=source, target=target) for source, target in pairs),
        model=TransformerConfig(
            d_model=64,
            d_ff=128,
            heads=4,
            encoder_layers=2,
            decoder_layers=2,
            dropout=0.0,
            norm_position="pre",
            max_source_tokens=256,
            max_target_tokens=256,
        ),
        tokenizer=TokenizerConfig(vocabulary_size=vocabulary_size),
        training=TrainingConfig(
            max_steps=max_steps,
            batch_tokens=1024,
            learning_rate=0.004,
            warmup_steps=max_steps // 8,
            cooldown_steps=max_steps // 2,
            label_smoothing=0.0,
            validation_every_steps=max_steps // 2,
        ),
    )


def train_bundle(pairs: Pairs, config: RunConfig, run_folder: Path, bundle: Path) -> None:
    """Trains a model by heart and writes its bundle."""
    corpora = [Corpus(*languages, list(texts), list(texts.values())) for languages, texts in pairs.items()]
    repeated = [Corpus(*corpus.languages, corpus.sources * REPEATED, corpus.targets * REPEATED) for corpus in corpora]
    training = [CleanedCorpus(item, NOTHING_DROPPED) for item in repeated]
    run = RunFolder(run_folder)
    train(run, config, TrainingData(training, corpora))
    samples = [Sample(corpus.direction, text) for corpus in corpora for text in corpus.sources]
    options = BundleOptions("conformance", alignment_heads=(AttentionHead(layer=1, head=0),))
    write_bundle(Exportable.of_run(run.load()), samples, bundle, options)


def main(run_folder: Path, bundle: Path, phrases: Path) -> None:
    """Trains the model of all languages."""
    pairs = make_pairs(read_phrases(phrases))
    train_bundle(pairs, make_config(pairs), run_folder, bundle)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
