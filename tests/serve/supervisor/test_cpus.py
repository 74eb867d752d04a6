"""CPUs are divided evenly, and each belongs to one process while there are enough."""

from itertools import chain

import pytest

from dragoman.serve.supervisor.worker_process import divide


@pytest.mark.parametrize("cpus", [1, 2, 5, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_every_process_gets_a_cpu_and_none_gets_many_more_than_another(cpus: int, count: int) -> None:
    shares = divide(range(100, 100 + cpus), count)
    assert len(shares) == count
    assert set(chain(*shares)) == set(range(100, 100 + cpus))
    sizes = [len(share) for share in shares]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    if count <= cpus:
        assert sum(sizes) == cpus
