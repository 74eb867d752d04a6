"""The search for the texts of a request: what clients ask for, within the limits of the model.

Limits in tokens are checked later, once the tokens of a text are known.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.search.option_table import ROWS, AlignmentUnit
from dragoman.serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from dragoman.serve.translation.fields import DEFAULT_SEARCH, OPTIONS, SearchFields, shown

# What a server without alignments expects.
ALIGNED = "{}: serve a bundle of `dragoman export --align LAYER:HEAD`, without --no-alignments"
# Options that the search takes as clients set them.
_UNCHANGED = tuple(ROWS.keys() & set(SearchOptions._fields) - {"max_target_tokens", "seed", "alignments"})
# Short enough to copy by hand, and exact as a double.
SEED_BITS = 32


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The pieces of the target side, by which clients name tokens.

    Attributes:
        pieces: in the order of their ids.
        ids: id of each piece.
        unk_id: id of the unknown token.
        eos_id: id of the end token.
    """

    pieces: Sequence[str]
    ids: Mapping[str, int]
    unk_id: int
    eos_id: int

    @classmethod
    def of(cls, pieces: Sequence[str], *, unk_id: int, eos_id: int) -> Self:
        """Returns the vocabulary of distinct pieces."""
        return cls(pieces, {piece: token_id for token_id, piece in enumerate(pieces)}, unk_id, eos_id)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The search for each text of a request, before its tokens are known.

    Attributes:
        options: common to all texts; lengths relative to the source and the prefix are not set yet.
        max_target_ratio: longest translation per source token; None: no limit.
        min_target_ratio: shortest translation per source token.
        token_scores: return the score of every token.
        alignments: units of the alignments to return; None: none.
        repeatable: the same text gets the same translation again; False if the server chose the seed.
    """

    options: SearchOptions
    max_target_ratio: float | None = None
    min_target_ratio: float = 0.0
    token_scores: bool = False
    alignments: AlignmentUnit | None = None
    repeatable: bool = True

    def options_for(
        self, source_tokens: int, target_prefix: tuple[int, ...], field: str, start: tuple[int, ...] = ()
    ) -> SearchOptions:
        """Returns the options of one text.

        Args:
            source_tokens: length of the source, prefix and suffix included.
            target_prefix: token ids that the translation must start with.
            field: the client's name of the prefix.
            start: tokens of the direction before the prefix; the client's limits do not count them.

        Raises:
            InvalidRequestError: if the prefix exceeds the longest translation.
        """
        options, longest = self.options, self.options.max_target_tokens
        if self.max_target_ratio is not None:
            longest = max(1, min(longest, math.floor(self.max_target_ratio * source_tokens)))
        shortest = max(options.min_target_tokens, math.ceil(self.min_target_ratio * source_tokens))
        # A forced end token takes one more position after the prefix.
        room = longest - options.forced_end
        if len(target_prefix) > room:
            raise InvalidRequestError(field, f"{len(target_prefix)} tokens, expected at most {room}")
        shortest = min(shortest, longest)
        unchanged = (longest, shortest) == (options.max_target_tokens, options.min_target_tokens)
        if unchanged and not target_prefix and not start:
            return options
        return options._replace(
            max_target_tokens=longest + len(start),
            min_target_tokens=shortest + len(start) if shortest else 0,
            target_prefix=(*start, *target_prefix),
            start_tokens=len(start),
        )


@dataclass(frozen=True)
class SearchLimits:
    """The limits of the model and its slots for every search.

    Attributes:
        max_target_tokens: longest translation, the end token excluded.
        max_rows: slots of one engine; all rows of a text run in one engine.
        aligned: the model returns attention weights.
        vocabulary: of the target side.
    """

    max_target_tokens: int
    max_rows: int
    aligned: bool
    vocabulary: TargetVocabulary

    def plan(self, fields: SearchFields) -> SearchPlan:
        """Returns the plan for valid fields; sampling without a seed gets a random one.

        Raises:
            InvalidRequestError: naming the first field that exceeds a limit.
        """
        return self._default_plan if fields is DEFAULT_SEARCH else self._plan(fields)

    @cached_property
    def _default_plan(self) -> SearchPlan:
        return self._plan(DEFAULT_SEARCH)

    def _plan(self, fields: SearchFields) -> SearchPlan:
        longest = self.max_target_tokens if fields.max_target_tokens is None else fields.max_target_tokens
        if longest > self.max_target_tokens:
            raise invalid_option("max_target_tokens", longest, f"1 to {self.max_target_tokens}: the model's limit")
        if fields.min_target_tokens > longest:
            raise invalid_option("min_target_tokens", fields.min_target_tokens, f"at most {longest}: the model's limit")
        if fields.rows > self.max_rows:
            name = "hypotheses" if fields.sampled else "beam_size"
            raise invalid_option(
                name, fields.rows, f"at most {self.max_rows}: a text must fit into the slots of one engine"
            )
        self._check_attention(fields)
        repeatable = fields.seed is not None or not fields.sampled
        seed = fields.seed if repeatable else secrets.randbits(SEED_BITS)
        options = SearchOptions(
            **{name: getattr(fields, name) for name in _UNCHANGED},
            max_target_tokens=longest,
            seed=seed or 0,
            suppressed_ids=self._suppressed_ids(fields),
            alignments=fields.alignments is not None,
        )
        return SearchPlan(
            options,
            fields.max_target_ratio,
            fields.min_target_ratio,
            fields.token_scores,
            fields.alignments,
            repeatable=repeatable,
        )

    def scoring_plan(self) -> SearchPlan:
        """Returns the plan for scoring given translations."""
        return SearchPlan(SearchOptions(max_target_tokens=self.max_target_tokens, forced_end=True), token_scores=True)

    def _check_attention(self, fields: SearchFields) -> None:
        if fields.coverage_penalty > 0 and not self.aligned:
            raise invalid_option("coverage_penalty", fields.coverage_penalty, ALIGNED.format(0))
        if fields.alignments and not self.aligned:
            raise invalid_option("alignments", fields.alignments, ALIGNED.format("none"))

    def _suppressed_ids(self, fields: SearchFields) -> tuple[int, ...]:
        ids: dict[int, None] = {}
        for index, piece in enumerate(fields.suppressed_tokens):
            token_id = self.vocabulary.ids.get(piece)
            if token_id is None:
                raise invalid_option(f"suppressed_tokens[{index}]", piece, "a piece of the target vocabulary")
            if token_id == self.vocabulary.eos_id:
                raise invalid_option(f"suppressed_tokens[{index}]", piece, "any piece but the end token")
            ids[token_id] = None
        if fields.suppress_unknown:
            ids[self.vocabulary.unk_id] = None
        if len(ids) > MAX_SUPPRESSED_IDS:
            expected = f"false with {MAX_SUPPRESSED_IDS} suppressed tokens, the maximum"
            raise invalid_option("suppress_unknown", fields.suppress_unknown, expected)
        return tuple(ids)


def invalid_option(name: str, value: object, expected: str) -> InvalidRequestError:
    """Returns the error of a search option."""
    return InvalidRequestError(f"{OPTIONS}.{name}", f"{shown(value)}, expected {expected}")
