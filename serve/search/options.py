"""Search options of one sequence, validated at the edge."""

from typing import NamedTuple

MAX_SUPPRESSED_IDS = 64


class SearchOptions(NamedTuple):
    """The options of one sequence. Lengths count target tokens without the end token.

    Attributes:
        max_target_tokens: longest translation.
        min_target_tokens: shortest translation: the end token is forbidden before.
        beam_size: hypotheses kept by beam search, K; 1: greedy search.
        patience: beam search ends when round(patience * K) hypotheses are finished (Kasai et al. 2022,
            arXiv:2204.05424, section 2).
        hypotheses: translations to return, best first; at most K unless sampled.
        length_penalty: alpha; hypotheses are ranked by score / length^alpha, the length with the end token.
        coverage_penalty: beta; adds beta * sum_i log(min(sum_j a_ij, 1)) over source tokens i and target tokens j, with
            attention weights a (Wu et al. 2016, arXiv:1609.08144, equation 14).
        temperature: divides the logits before sampling; 0: no sampling.
        top_k: samples from this many most probable tokens; 0: from all.
        top_p: samples from the fewest tokens that together have this probability (Holtzman et al. 2020,
            arXiv:1904.09751, section 3.1).
        seed: the same seed, source and options give the same tokens, whatever else is in the batch.
        repetition_penalty: divides positive logits of tokens that the hypothesis already has, multiplies negative ones
            (Keskar et al. 2019, arXiv:1909.05858, section 4.1); 1: no change.
        no_repeat_ngram_tokens: size of n-grams that may not repeat; 0: no limit.
        suppressed_ids: forbidden tokens, at most `MAX_SUPPRESSED_IDS`.
        target_prefix: tokens that the translation starts with, whatever their probability.
        new_word: whether no token that continues a word may follow the prefix; the model states which ones do.
        start_tokens: number of first tokens of the prefix with score 0: they select the target language. They count in
            the lengths here.
        forced_end: forces the end token after the prefix: only the scores of a given translation are computed.
        alignments: whether to keep the attention of each target token.
        shortlist: whether the translation uses tokens of the model's shortlist alone: others get the logit -inf before
            the softmax. Probabilities are those among the candidates.
        candidate_ids: further tokens that it may use.
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
    new_word: bool = False
    start_tokens: int = 0
    forced_end: bool = False
    alignments: bool = False
    shortlist: bool = False
    candidate_ids: tuple[int, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether tokens are sampled."""
        return self.temperature > 0

    @property
    def constrained(self) -> bool:
        """Whether constraints change the logits of tokens that are not forced."""
        return bool(
            self.min_target_tokens or self.repetition_penalty != 1 or self.no_repeat_ngram_tokens or self.suppressed_ids
        )

    @property
    def attended(self) -> bool:
        """Whether hypotheses keep the attention of their tokens."""
        return self.alignments or self.coverage_penalty > 0

    @property
    def rows(self) -> int:
        """Rows of the sequence in a step."""
        return self.hypotheses if self.temperature > 0 else self.beam_size

    @property
    def examined(self) -> int:
        """The best tokens of a hypothesis that search examines: two per hypothesis of a beam."""
        return 1 if self.sampled or self.beam_size == 1 else 2 * self.beam_size

    def begins_word(self, position: int) -> bool:
        """Returns whether no token that continues a word is allowed at a position."""
        return self.new_word and position == len(self.target_prefix)

    def forced_id(self, position: int, eos_id: int) -> int | None:
        """Returns the token that is forced at a position; None: any."""
        if position < len(self.target_prefix):
            return self.target_prefix[position]
        return eos_id if self.forced_end and position == len(self.target_prefix) else None
