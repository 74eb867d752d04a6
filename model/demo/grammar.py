"""The demo grammar: all sentence rules with their weights. One call makes one sentence pair.

The grammar is a function: each of its English sentences has exactly one German translation, because no word of the
lexicon is ambiguous where it can stand, and no rule makes a choice that only German shows. Called by corpus.py.
"""

from model.demo.chance import Chance, spread
from model.demo.clauses import Clauses
from model.demo.compounds import Compounds
from model.demo.pair import Pair
from model.demo.questions import Questions
from model.demo.statements import Statements


class Grammar:
    """Makes sentence pairs, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Chance(seed)
        clauses = Clauses(self._chance)
        statements, questions, compounds = Statements(clauses), Questions(clauses), Compounds(clauses)
        self._rules = spread(
            {
                statements.plain: 24,
                statements.fronted: 14,
                statements.description: 6,
                statements.location: 2,
                statements.age: 2,
                statements.price: 2,
                statements.existence: 3,
                questions.yes_no: 7,
                questions.subject: 2,
                questions.object: 3,
                questions.choice: 3,
                questions.time: 2,
                questions.reason: 2,
                questions.place: 1,
                compounds.coordinated: 5,
                compounds.subordinate_last: 8,
                compounds.subordinate_first: 5,
                compounds.reported: 5,
                compounds.subject_with_relative: 3,
                compounds.object_with_relative: 3,
            }
        )

    def sentence(self) -> Pair:
        """Makes the next sentence; the same one may come again."""
        return self._chance.pick(self._rules)()
