"""How a translation is searched for: the values that one sequence is decoded with, valid from the edge on.

Known to both interfaces, which make them, and to search, which obeys them. Knows neither.
"""

from dataclasses import dataclass

MAX_SUPPRESSED_IDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The options of one sequence. Lengths count target tokens without the end token.

    Attributes:
        max_target_tokens: the longest translation.
        min_target_tokens: the shortest one: the end token may not come before.
        beam_size: hypotheses that beam search follows, K; 1: greedy search.
        patience: beam search ends when round(patience * K) hypotheses are finished (Kasai et al. 2022,
            arXiv:2204.05424, section 2).
        hypotheses: how many translations to give, best first; at most K, unless they are sampled.
        length_penalty: alpha; hypotheses are compared by score / length^alpha, the length with the end token.
        coverage_penalty: beta; adds beta * sum_i log(min(sum_j a_ij, 1)) over source tokens i and target tokens j to
            that (Wu et al. 2016, arXiv:1609.08144, equation 14), with the attention weights a.
        temperature: what logits are divided by before a token is drawn; 0: nothing is drawn.
        top_k: draw from this many most probable tokens; 0: from all.
        top_p: draw from the fewest tokens that together have this probability (Holtzman et al. 2020,
            arXiv:1904.09751, section 3.1).
        seed: the same seed, source and options draw the same tokens in any company.
        repetition_penalty: logits of tokens that the hypothesis has already are divided by it where positive,
            multiplied where negative (Keskar et al. 2019, arXiv:1909.05858, section 4.1); 1: no change.
        no_repeat_ngram_tokens: no sequence of this many tokens occurs twice; 0: no such rule.
        suppressed_ids: tokens that are never chosen, at most `MAX_SUPPRESSED_IDS`.
        target_prefix: tokens that the translation starts with, chosen whatever their probability is.
        forced_end: the end token is forced behind the prefix: the translation is given, only its scores are asked for.
        alignments: whether to keep how much each target token looked at each source token.
    """

    max_target_tokens: int
    min_target_tokens: int = 0
    beam_size: int = 1
    patience: float = 1.0
    hypotheses: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_tokens: int = 0
    suppressed_ids: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    forced_end: bool = False
    alignments: bool = False

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn."""
        return self.temperature > 0

    @property
    def constrained(self) -> bool:
        """Whether anything but the model and chance has a say in which token is next."""
        return bool(
            self.min_target_tokens
            or self.repetition_penalty != 1
            or self.no_repeat_ngram_tokens
            or self.suppressed_ids
            or self.target_prefix
            or self.forced_end
        )

    @property
    def rows(self) -> int:
        """Rows that the sequence takes in a step."""
        return self.hypotheses if self.sampled else self.beam_size
