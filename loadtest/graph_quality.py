"""What precision costs: BLEU of the translations that a system finds greedily.

Called by `loadtest.graph_comparison`.
"""

from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from export.bundle import Bundle
from export.verification.by_hand import translate
from loadtest.graph_models import ComparedModel
from loadtest.graph_systems import GraphSystem, OnnxSystem
from model.bootstrap import Measure, measure
from model.corpus import Corpus, CorpusError


def source_ids(model: ComparedModel, corpus: Corpus) -> list[tuple[int, ...]]:
    """Returns what the model reads of a test set.

    Raises:
        CorpusError: if it does not translate in this direction, or a sentence is too long for it.
    """
    directions = {(each.source, each.target): each for each in model.exportable.directions}
    if corpus.languages not in directions:
        known = ", ".join(map(str, model.exportable.directions))
        raise CorpusError(f"{model.name} translates {known}, expected {corpus.direction} as in the data")
    prefix = directions[corpus.languages].source_prefix
    sources = [model.exportable.source_ids(prefix, text) for text in corpus.sources]
    longest = model.model.config.max_source_tokens
    for number, source in enumerate(sources, start=1):
        if len(source) > longest:
            raise CorpusError(f"sentence {number}: {len(source)} tokens, expected at most {longest}")
    return sources


def measure_quality(model: ComparedModel, corpus: Corpus, system: GraphSystem, folder: Path, threads: int) -> Measure:
    """Returns the BLEU of a system, whose files are in a folder.

    Raises:
        CorpusError: as `source_ids` does.
    """
    targets = _translate(model, source_ids(model, corpus), system, folder, threads)
    translations = [model.tokenizer.decode(target) for target in targets]
    return measure(BLEU(), translations, corpus.targets)


def _translate(
    model: ComparedModel, sources: Sequence[tuple[int, ...]], system: GraphSystem, folder: Path, threads: int
) -> list[Sequence[int]]:
    if isinstance(system, OnnxSystem):
        return [answer.target_ids for answer in translate(Bundle.open(folder), sources)]
    from loadtest.peers.ctranslate2_decoder import CTranslate2Decoder  # noqa: PLC0415 - only with this peer

    decoder = CTranslate2Decoder(str(folder), threads, system.compute_type)
    return [*decoder.translate(sources, model.model.config.max_target_tokens)]
