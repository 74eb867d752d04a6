"""Fair queuing among the flows of one priority: which round each sequence of a flow belongs to.

Lower rounds start first. The first sequence of every flow belongs to the current round and each further one to a later
round, so that the second text of a long request waits behind the first text of everybody else. Knows flows and rounds,
not sequences; called by `serve.scheduler.queue`, under the scheduler's lock.
"""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Flow:
    next_round: int
    waiting: int


class Flows:
    """The flows that have something waiting, and the current round.

    Start-time fair queuing (Goyal, Vin and Cheng 1996, "Start-time fair queuing", section 2): sequence k of a flow gets
    the start tag S_k = max(v, S_(k-1) + rows_(k-1)), so that flows share rows, not sequences. The virtual time v is one
    round past the latest start, where the paper takes that start itself: its flows are lasting connections, ours are
    requests, and a stream of new ones would keep v where it is and starve every second text.

    Attributes:
        current_round: v, the round of the first sequence of a flow that comes now.
    """

    def __init__(self) -> None:
        self.current_round = 0
        self._flows: dict[Hashable, _Flow] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def enter(self, flow: Hashable, rows: int) -> int:
        """Returns the round of a sequence of `rows` rows that joins the flow."""
        state = self._flows.setdefault(flow, _Flow(self.current_round, 0))
        entered_round = max(self.current_round, state.next_round)
        state.next_round = entered_round + rows
        state.waiting += 1
        return entered_round

    def start(self, started_round: int) -> None:
        """Moves the current round past that of a sequence which starts now."""
        self.current_round = max(self.current_round, started_round + 1)

    def leave(self, flow: Hashable) -> None:
        """Takes one sequence out of the flow, and forgets a flow that has none left."""
        state = self._flows[flow]
        state.waiting -= 1
        if not state.waiting:
            del self._flows[flow]
