"""How a model reads and writes text."""

from dataclasses import dataclass

from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.translation.large_work import normalized_bytes
from dragoman.serve.translation.search_plan import TargetVocabulary


@dataclass(frozen=True, slots=True)
class TextModel:
    """The tokens of one model, and how long its sources may be.

    Attributes:
        source_suffix: token ids after every source.
        max_source_tokens: of a source with prefix and suffix.
        least_log_probability: mean per token below which a text has low confidence; None: unknown.
    """

    tokenizer: TextTokenizer
    vocabulary: TargetVocabulary
    source_suffix: tuple[int, ...]
    max_source_tokens: int
    least_log_probability: float | None = None

    def source_ids(self, source_prefix: tuple[int, ...], text: str) -> tuple[int, ...]:
        """Returns the token ids of a source, including prefix and suffix."""
        return (*source_prefix, *self.tokenizer.encode(text), *self.source_suffix)

    def fits(self, source_prefix: tuple[int, ...], sentence: str) -> bool:
        """Returns whether the model can read a sentence after a prefix."""
        max_tokens = self.max_source_tokens - len(source_prefix) - len(self.source_suffix)
        # A token has at least one byte, except for the first of a text: most sentences need no tokenization here.
        return normalized_bytes(sentence) < max_tokens or len(self.tokenizer.encode(sentence)) <= max_tokens
