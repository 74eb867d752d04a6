"""What the served model and its slots allow a search: valid fields to a plan, and a plan to the options of one text.

`SearchLimits.plan` checks what `serve.translation.search_fields` cannot know, once for each request;
`SearchPlan.options_for` what is known only when a text is tokens. Nothing behind them checks again. Knows no protocol;
called by `serve.translation.request` and `serve.translation.translator`.
"""

import math
import secrets
from dataclasses import dataclass, replace

from serve.errors import InvalidRequestError
from serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from serve.translation.fields import shown
from serve.translation.search_fields import OPTIONS, SearchFields
from serve.translation.target_vocabulary import TargetVocabulary

# Short enough to be copied, and exact in every language's numbers.
SEED_BITS = 32


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How each text of a request is searched for, before its tokens are known.

    Attributes:
        options: of every text, but for the lengths that follow from its own, and its prefix.
        max_target_ratio: the longest translation, times the tokens of the source; None: no such limit.
        min_target_ratio: the shortest one.
        token_scores: whether the client wants the score of every token.
        repeatable: whether the same text gets the same answer again; False if the server chose the seed.
    """

    options: SearchOptions
    max_target_ratio: float | None = None
    min_target_ratio: float = 0.0
    token_scores: bool = False
    repeatable: bool = True

    def options_for(self, source_tokens: int, target_prefix: tuple[int, ...], field: str) -> SearchOptions:
        """Returns the options of one text.

        Args:
            source_tokens: of the text, with what surrounds it.
            target_prefix: tokens that the translation must start with.
            field: what the client calls the prefix.

        Raises:
            InvalidRequestError: if the prefix is longer than the translation may be.
        """
        options, longest = self.options, self.options.max_target_tokens
        if self.max_target_ratio is not None:
            longest = max(1, min(longest, math.floor(self.max_target_ratio * source_tokens)))
        shortest = max(options.min_target_tokens, math.ceil(self.min_target_ratio * source_tokens))
        # The end token that is forced behind a prefix needs a place of its own.
        room = longest - options.forced_end
        if len(target_prefix) > room:
            raise InvalidRequestError(field, f"{len(target_prefix)} tokens, expected at most {room}")
        shortest = min(shortest, longest)
        if not target_prefix and (longest, shortest) == (options.max_target_tokens, options.min_target_tokens):
            return options
        return replace(
            options,
            max_target_tokens=longest,
            min_target_tokens=shortest,
            target_prefix=target_prefix,
        )


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What is the same for every request.

    Attributes:
        max_target_tokens: length of one translation, without the end token.
        max_rows: slots of one engine: a text must fit into one.
        aligned: whether the model tells where it looks.
        vocabulary: of translations.
    """

    max_target_tokens: int
    max_rows: int
    aligned: bool
    vocabulary: TargetVocabulary

    def plan(self, fields: SearchFields) -> SearchPlan:
        """Returns how the texts of a request are searched for.

        Sampling without a seed gets a random one.

        Raises:
            InvalidRequestError: naming the first field that the model or its slots cannot serve.
        """
        longest = self.max_target_tokens if fields.max_target_tokens is None else fields.max_target_tokens
        if longest > self.max_target_tokens:
            raise _refused("max_target_tokens", longest, f"1 to {self.max_target_tokens}: the model's limit")
        if fields.min_target_tokens > longest:
            raise _refused("min_target_tokens", fields.min_target_tokens, f"at most {longest}: the model's limit")
        if fields.rows > self.max_rows:
            name = "hypotheses" if fields.sampled else "beam_size"
            raise _refused(name, fields.rows, f"at most {self.max_rows}: a text must fit into the slots of one engine")
        self._check_attention(fields)
        repeatable = fields.seed is not None or not fields.sampled
        seed = fields.seed if repeatable else secrets.randbits(SEED_BITS)
        options = SearchOptions(
            max_target_tokens=longest,
            min_target_tokens=fields.min_target_tokens,
            beam_size=fields.beam_size,
            patience=fields.patience,
            hypotheses=fields.hypotheses,
            length_penalty=fields.length_penalty,
            coverage_penalty=fields.coverage_penalty,
            temperature=fields.temperature,
            top_k=fields.top_k,
            top_p=fields.top_p,
            seed=seed or 0,
            repetition_penalty=fields.repetition_penalty,
            no_repeat_ngram_tokens=fields.no_repeat_ngram_tokens,
            suppressed_ids=self._suppressed_ids(fields),
            alignments=fields.alignments,
        )
        return SearchPlan(
            options, fields.max_target_ratio, fields.min_target_ratio, fields.token_scores, repeatable=repeatable
        )

    def scoring_plan(self) -> SearchPlan:
        """Returns how given translations are scored: nothing is searched for."""
        return SearchPlan(SearchOptions(max_target_tokens=self.max_target_tokens, forced_end=True), token_scores=True)

    def _check_attention(self, fields: SearchFields) -> None:
        expected = (
            "{}: this server runs without alignments; start it with --alignments, on a bundle that was exported with "
            "--align LAYER:HEAD"
        )
        if fields.coverage_penalty > 0 and not self.aligned:
            raise _refused("coverage_penalty", fields.coverage_penalty, expected.format(0))
        if fields.alignments and not self.aligned:
            raise _refused("alignments", fields.alignments, expected.format("false"))

    def _suppressed_ids(self, fields: SearchFields) -> tuple[int, ...]:
        ids: dict[int, None] = {}
        for index, piece in enumerate(fields.suppressed_tokens):
            token_id = self.vocabulary.ids.get(piece)
            if token_id is None:
                raise _refused(f"suppressed_tokens[{index}]", piece, "a piece of the target vocabulary")
            if token_id == self.vocabulary.eos_id:
                raise _refused(f"suppressed_tokens[{index}]", piece, "another one than the end token")
            ids[token_id] = None
        if fields.suppress_unknown:
            ids[self.vocabulary.unk_id] = None
        if len(ids) > MAX_SUPPRESSED_IDS:
            expected = f"false with {MAX_SUPPRESSED_IDS} suppressed tokens, which are as many as there may be"
            raise _refused("suppress_unknown", fields.suppress_unknown, expected)
        return tuple(ids)


def _refused(name: str, value: object, expected: str) -> InvalidRequestError:
    return InvalidRequestError(f"{OPTIONS}.{name}", f"{shown(value)}, expected {expected}")
