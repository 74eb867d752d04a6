"""A capture excludes all users; users run together, and new ones wait while a capture waits."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dragoman.serve.runtime.cuda.device import CaptureGate
from tests.support.live import eventually

SECONDS = 60.0
SOON_SECONDS = 0.05


@pytest.fixture
def gate() -> CaptureGate:
    return CaptureGate()


def enter(gate: CaptureGate, kind: str, entered: threading.Event, leave: threading.Event) -> None:
    with getattr(gate, kind)():
        entered.set()
        assert leave.wait(SECONDS)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [("use", "use", True), ("use", "capture", False), ("capture", "use", False), ("capture", "capture", False)],
)
def test_users_run_together_and_captures_alone(gate: CaptureGate, first: str, second: str, together: bool) -> None:
    entered, leave = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(enter, gate, first, entered[0], leave[0])]
        assert entered[0].wait(SECONDS)
        futures.append(pool.submit(enter, gate, second, entered[1], leave[1]))
        assert entered[1].wait(SECONDS if together else SOON_SECONDS) is together
        leave[0].set()
        assert entered[1].wait(SECONDS)
        leave[1].set()
        for future in futures:
            future.result(SECONDS)


def test_new_users_wait_for_a_waiting_capture(gate: CaptureGate) -> None:
    names = ("user", "capture", "later user")
    entered, leave = ({name: threading.Event() for name in names} for _ in range(2))
    with ThreadPoolExecutor(3) as pool:
        pool.submit(enter, gate, "use", entered["user"], leave["user"])
        assert entered["user"].wait(SECONDS)
        pool.submit(enter, gate, "capture", entered["capture"], leave["capture"])
        eventually(lambda: gate._captures == 1)
        pool.submit(enter, gate, "use", entered["later user"], leave["later user"])
        assert not entered["later user"].wait(SOON_SECONDS)
        leave["user"].set()
        assert entered["capture"].wait(SECONDS)
        assert not entered["later user"].is_set()
        leave["capture"].set()
        assert entered["later user"].wait(SECONDS)
        leave["later user"].set()


def test_an_error_releases_the_lock(gate: CaptureGate) -> None:
    for block in (gate.use, gate.capture):
        with pytest.raises(ValueError, match="broken"), block():
            raise ValueError("broken")
    with gate.capture():
        pass
