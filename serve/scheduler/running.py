"""What runs now, in sequences, rows and tokens, and whether one more may.

Counts over all engines; which row belongs to whom is known to each engine alone. Belongs to
`serve.scheduler.scheduler`, which holds its lock around every call.
"""

from dataclasses import dataclass

from serve.scheduler.sequence import Sequence


@dataclass(slots=True)
class Running:
    """Counts of the sequences that engines hold.

    Attributes:
        token_budget: the most tokens that run together; None: no bound. A sequence that is larger runs alone.
        sequences: how many there are.
        rows: rows that they take.
        tokens: tokens that they may come to hold, as `most_tokens` counts them.
    """

    token_budget: int | None
    sequences: int = 0
    rows: int = 0
    tokens: int = 0

    def has_room(self, sequence: Sequence) -> bool:
        """Whether the token budget lets the sequence start now."""
        if self.token_budget is None or not self.sequences:
            return True
        return self.tokens + most_tokens(sequence) <= self.token_budget

    def add(self, sequence: Sequence) -> None:
        """Counts a sequence that starts."""
        self.sequences += 1
        self.rows += sequence.options.rows
        self.tokens += most_tokens(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Counts a sequence that ended."""
        self.sequences -= 1
        self.rows -= sequence.options.rows
        self.tokens -= most_tokens(sequence)


def most_tokens(sequence: Sequence) -> int:
    """Returns rows x (source tokens + longest target): what the sequence holds in the end if nothing ends it early."""
    return sequence.options.rows * (len(sequence.source_ids) + sequence.options.max_target_tokens)
