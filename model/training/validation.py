"""Validation by translating: BLEU and chrF of the model's own translations, which is what training is for."""

from typing import Any

from lightning.pytorch.callbacks import Callback

from model.data.segmentation import Segmentation
from model.generate import generate_greedy
from model.score import score
from model.tokenizer.tokenizer import EOS_ID

# Enough for a BLEU that tells checkpoints apart; a validation set of many directions may have more.
MAX_SENTENCES = 1200
BATCH_SENTENCES = 100


class ValidationTranslation(Callback):
    """Translates validation sentences greedily and logs `validation_bleu` and `validation_chrf`.

    Comes before the callback that averages parameters, so that it sees what is validated.
    """

    def __init__(self, segmentation: Segmentation) -> None:
        self._tokenizer = segmentation.tokenizer
        self._sources: list[list[int]] = []
        self._references: list[str] = []
        stride = max(1, sum(map(len, segmentation.corpora)) // MAX_SENTENCES)
        for corpus, encoded in zip(segmentation.corpora, segmentation.encoded, strict=True):
            prefix = segmentation.prefix(corpus)
            for ids, reference in zip(encoded.sources[::stride], corpus.targets[::stride], strict=True):
                source = [*prefix, *ids, EOS_ID]
                if len(source) <= segmentation.config.model.max_source_tokens:
                    self._sources.append(source)
                    self._references.append(reference)

    def on_validation_epoch_end(self, _trainer: Any, pl_module: Any) -> None:
        """Translates and logs."""
        order = sorted(range(len(self._sources)), key=lambda index: len(self._sources[index]))
        translations = [""] * len(order)
        for start in range(0, len(order), BATCH_SENTENCES):
            indices = order[start : start + BATCH_SENTENCES]
            generated = generate_greedy(pl_module.model, [self._sources[index] for index in indices])
            for index, answer in zip(indices, generated, strict=True):
                translations[index] = self._tokenizer.decode(answer.target_ids)
        quality = score(translations, self._references)
        pl_module.log_dict({"validation_bleu": quality.bleu, "validation_chrf": quality.chrf}, prog_bar=True)
