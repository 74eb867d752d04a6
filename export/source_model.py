"""The source of a bundle: a trained or imported model with its tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from dragoman.model.errors import CorpusError, RunError
from dragoman.model.tokenizer.frozen_tokenizer import FrozenTokenizer
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.directions import HasDirections, directions_of
from dragoman.serve.bundle.manifest import AttentionHead, BundleDirection, Multilingual
from dragoman.serve.bundle.shortlist import Shortlist

if TYPE_CHECKING:
    from dragoman.model.network.transformer import Transformer
    from dragoman.model.run import TrainedModel


ImportedTokenizer = PieceTokenizer | WordTokenizer
# Directions, or languages of a model that translates between any two of them.
Languages = tuple[tuple[BundleDirection, ...], Multilingual | None]


@dataclass(frozen=True, slots=True)
class Exportable:
    """A model in evaluation mode and its tokenizer, which share token ids. An imported model has no PyTorch yet.

    Either it has directions, or it is multilingual. Every source ends with `source_suffix`; `unk_id` stands for unknown
    pieces. `training` is the configuration of the training or import. `steps` is the number of optimizer steps, 0 if
    unknown. `alignment_heads` are those that an imported file names. `description`, `license`, `beam_size` and
    `context_separator` are those of an exported bundle. `files` go into the bundle as they are, by name. `shortlist`
    has an entry for each token of the model.
    """

    model: "Transformer | TransformerWeights"
    tokenizer: Tokenizer | ImportedTokenizer
    directions: tuple[BundleDirection, ...]
    source_suffix: tuple[int, ...]
    unk_id: int
    training: dict[str, object]
    steps: int
    multilingual: Multilingual | None = None
    alignment_heads: tuple[AttentionHead, ...] = ()
    description: str = ""
    license: str = ""
    beam_size: int = 1
    context_separator: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    shortlist: Shortlist | None = None

    @classmethod
    def of_run(cls, trained: "TrainedModel") -> Self:
        """Returns a trained model with its source tokens; raises TokenizerError if a target language has no token.

        An imported model that was trained further is an import again.
        """
        tokenizer, directions = trained.tokenizer, trained.config.directions
        framed = (item.model_dump() | tokenizer.frame(directions, item)._asdict() for item in directions)
        found = cls(
            model=trained.model,
            tokenizer=tokenizer,
            directions=tuple(BundleDirection(**item) for item in framed),
            source_suffix=tokenizer.source_suffix,
            unk_id=tokenizer.unk_id,
            training=trained.config.model_dump(mode="json"),
            steps=trained.steps,
        )
        if not isinstance(tokenizer, FrozenTokenizer):
            return found
        from dragoman.export.torch_weights import to_weights  # noqa: PLC0415 - requires PyTorch

        imported = tokenizer.tokens.imported
        multilingual = imported["multilingual"] and Multilingual.model_validate(imported["multilingual"])
        return replace(
            found,
            model=to_weights(trained.model),
            directions=() if multilingual else found.directions,
            multilingual=multilingual,
            training={**imported["training"], "further": found.training},
            license=imported.get("license", ""),
        )

    @classmethod
    def of_import(
        cls,
        origin: str,
        config: dict[str, object],
        model: TransformerWeights,
        tokenizer: ImportedTokenizer,
        languages: Languages,
        *,
        source_suffix: tuple[int, ...],
    ) -> Self:
        """Returns an imported model; `origin` and `config` are the kind and the configuration of its files."""
        directions, multilingual = languages
        return cls(
            model=model,
            tokenizer=tokenizer,
            directions=directions,
            multilingual=multilingual,
            source_suffix=source_suffix,
            unk_id=tokenizer.unk_id,
            training={"imported_from": origin, "config": config},
            steps=0,
        )

    @property
    def weights(self) -> TransformerWeights:
        """The weights of an imported model."""
        if not isinstance(self.model, TransformerWeights):
            raise TypeError("expected an imported model, got one in PyTorch")
        return self.model

    @property
    def network(self) -> "Transformer":
        """The model in PyTorch; that of an import is built at each call."""
        if not isinstance(self.model, TransformerWeights):
            return self.model
        from dragoman.export.torch_weights import to_torch  # noqa: PLC0415 - requires PyTorch

        return to_torch(self.model)

    def between(self, source_language: str | None, target_language: str | None) -> Self:
        """Returns the model with only its directions between these languages (None: any); raises RunError if none."""
        directions = directions_of(self)
        found = tuple(directions.matching(source_language or "", target_language or ""))
        if not found:
            languages = f"source-language, target-language: {source_language}, {target_language}"
            raise RunError(f"{languages}: expected languages of a direction of the model: {directions}")
        return replace(self, directions=found, multilingual=None)

    def source_ids(self, source_prefix: tuple[int, ...], text: str) -> tuple[int, ...]:
        """Returns the token ids of a source, including prefix and suffix."""
        return (*source_prefix, *self.tokenizer.encode(text), *self.source_suffix)


def find_direction(model: HasDirections, languages: tuple[str, str]) -> BundleDirection:
    """Returns the direction for data in these languages, source and target; raises CorpusError if there is none."""
    directions = directions_of(model)
    found = directions.find(*languages)
    if found is None:
        raise CorpusError(f"data: {'-'.join(languages)}: expected a direction of the model: {directions}")
    return found
