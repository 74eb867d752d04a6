"""What precision costs: BLEU of the translations that a system finds greedily.

Called by `benchmarks.graph_comparison`.
"""

from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from benchmarks.graphs import GraphSystem, OnnxSystem
from benchmarks.systems.compared_model import ComparedModel
from export.verify.graph_decoder import translate
from model.data.corpus import Corpus
from model.scoring import Measure, measure
from serve.bundle.bundle import Bundle


def measure_quality(model: ComparedModel, corpus: Corpus, system: GraphSystem, folder: Path, threads: int) -> Measure:
    """Returns the BLEU of a system, whose files are in a folder.

    Raises:
        CorpusError: if the model cannot translate it.
    """
    targets = _translate(model, model.source_ids(corpus), system, folder, threads)
    translations = [model.exportable.tokenizer.decode(target) for target in targets]
    return measure(BLEU(), translations, corpus.targets)


def _translate(
    model: ComparedModel, sources: Sequence[tuple[int, ...]], system: GraphSystem, folder: Path, threads: int
) -> list[Sequence[int]]:
    if isinstance(system, OnnxSystem):
        return [answer.target_ids for answer in translate(Bundle.open(folder), sources)]
    from benchmarks.systems.ctranslate2_decoder import CTranslate2Decoder  # noqa: PLC0415 - only with this peer

    decoder = CTranslate2Decoder(str(folder), threads, system.compute_type)
    return [*decoder.translate(sources, model.model.config.max_target_tokens)]
