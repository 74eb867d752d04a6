"""Expected translations of the fake model, by the slow reference search."""

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.search.options import SearchOptions
from tests.support.fakes import BOS_ID, CONTINUING_IDS, EOS_ID, next_attention, next_logits
from tests.support.search_reference import Found, search


@lru_cache(1000)
def reference(source_ids: tuple[int, ...], options: SearchOptions) -> list[Found]:
    """Returns the translations of one source, best first; both engines are compared with the same ones."""

    def history(target_ids: tuple[int, ...]) -> NDArray[np.int64]:
        return np.array((BOS_ID, *target_ids))

    @cache
    def logits(target_ids: tuple[int, ...]) -> NDArray[np.float64]:
        return next_logits(np.array(source_ids), history(target_ids)).astype(np.float64)

    @cache
    def attention(target_ids: tuple[int, ...]) -> NDArray[np.float64]:
        return next_attention(len(source_ids), history(target_ids)).astype(np.float64)

    return search(logits, options, eos_id=EOS_ID, attention=attention, continuing_ids=CONTINUING_IDS)
