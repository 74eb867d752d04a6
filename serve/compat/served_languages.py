"""The languages that the served models translate, directly or through a third language."""

from collections.abc import Callable, Collection, Iterator, Sequence

from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.registry.route import Offers, served_code
from dragoman.serve.translation.detection import DetectedLanguage, best_guess, detect_languages
from dragoman.serve.translation.request import AUTO


class ServedLanguages:
    """Sources and targets of the models; follows reloads."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._offers: Offers | None = None
        self._targets: dict[str, frozenset[str]] = {}
        self._all: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[str]:
        """Iterates over the codes of sources and targets in alphabetical order."""
        return iter(sorted(self._read()))

    @property
    def sources(self) -> tuple[str, ...]:
        """The codes of sources in alphabetical order."""
        self._read()
        return tuple(sorted(self._targets))

    @property
    def targets(self) -> tuple[str, ...]:
        """The codes of targets in alphabetical order."""
        self._read()
        return tuple(sorted(frozenset[str]().union(*self._targets.values())))

    def targets_of(self, source: str) -> frozenset[str]:
        """Returns the codes of languages that a source is translated into, itself excluded."""
        self._read()
        return self._targets.get(source, frozenset())

    def find(self, code: str, more: Collection[str] = ()) -> str | None:
        """Returns the code of a language as `served_code` finds it, `more` last; None: it is not served."""
        return served_code(code, self._models.offers, more)

    def find_pair(
        self,
        source: str | None,
        target: str,
        unserved: Callable[[str, str], Exception],
        variants: Callable[[str], Collection[str]] = lambda _: (),
    ) -> tuple[str, str]:
        """Returns the served codes of two languages; `AUTO`: the source is to be detected.

        Args:
            source: code from a client; None: to be detected.
            unserved: returns the error for a language that is not served, given `source` or `target` and its code.
            variants: returns the codes to try last.

        Raises:
            Exception: of `unserved`.
        """
        found = AUTO if source is None else self.find(source, variants(source))
        if found is None:
            raise unserved("source", str(source))
        into = self.find(target, variants(target))
        if into is None:
            raise unserved("target", target)
        return found, into

    async def languages_of(
        self, texts: Sequence[str], source: str, target: str, deadline_seconds: float, *, markup: bool
    ) -> list[DetectedLanguage]:
        """Returns the source, or with `AUTO` each text's language; raises DeadlineExceededError after the deadline."""
        if source != AUTO:
            return [DetectedLanguage(source, 1.0)] * len(texts)
        candidates = (*self.sources, target)
        found = await detect_languages(texts, candidates, deadline_seconds, markup=markup)
        return [best_guess(result, candidates) for result in found]

    def _read(self) -> frozenset[str]:
        if self._models.offers is not self._offers:
            self._offers = self._models.offers
            self._targets = _with_pivots(self._offers)
            self._all = frozenset(self._targets).union(*self._targets.values())
        return self._all


def _with_pivots(offers: Offers) -> dict[str, frozenset[str]]:
    direct: dict[str, set[str]] = {}
    for directions in offers.values():
        for source, target in directions.pairs():
            direct.setdefault(source, set()).add(target)
    everything = frozenset().union(*direct.values())
    reached = {}
    for source, targets in direct.items():
        # Most models have all directions: then nothing is left to find.
        missing = everything - targets - {source}
        further = set[str]().union(*(direct.get(pivot, ()) for pivot in targets - {source})) if missing else set()
        reached[source] = frozenset((targets | further) - {source})
    return reached
