"""What a bundle is made of, whoever trained the model: a run of ours, or an import.

`export.make_bundle` takes it, `export.verify.command` compares bundles with it.
"""

from dataclasses import dataclass
from typing import Self

from model.network.translation_model import TranslationModel
from model.run import TrainedModel
from model.tokenizer.piece_tokenizer import PieceTokenizer
from model.tokenizer.tokenizer import EOS_ID, UNK_ID, Tokenizer, source_prefix
from serve.bundle.manifest import BundleDirection


@dataclass(frozen=True, slots=True)
class Exportable:
    """A model, its tokenizer, and how the two belong together.

    Attributes:
        model: in evaluation mode.
        tokenizer: its ids are the model's.
        directions: what the model translates.
        source_suffix: tokens after every source.
        unk_id: stands for what the tokenizer does not know.
        training: how the model was trained, or where it was imported from.
        steps: optimizer steps taken; 0 if nobody knows.
    """

    model: TranslationModel
    tokenizer: Tokenizer | PieceTokenizer
    directions: tuple[BundleDirection, ...]
    source_suffix: tuple[int, ...]
    unk_id: int
    training: dict[str, object]
    steps: int

    @classmethod
    def of_run(cls, trained: TrainedModel) -> Self:
        """Returns a trained model, with the tokens that it was trained to find around its sources.

        Raises:
            TokenizerError: if the model has several target languages and the tokenizer lacks a token for one.
        """
        directions = trained.config.directions
        return cls(
            model=trained.model,
            tokenizer=trained.tokenizer,
            directions=tuple(
                BundleDirection(
                    source=direction.source,
                    target=direction.target,
                    source_prefix=source_prefix(trained.tokenizer, directions, direction),
                )
                for direction in directions
            ),
            source_suffix=(EOS_ID,),
            unk_id=UNK_ID,
            training=trained.config.model_dump(mode="json"),
            steps=trained.steps,
        )

    def source_ids(self, source_prefix: tuple[int, ...], text: str) -> tuple[int, ...]:
        """Returns what the model reads of a text."""
        return (*source_prefix, *self.tokenizer.encode(text), *self.source_suffix)
