"""`python -m benchmarks.stages FILE ARGUMENT...`: runs `dragoman ARGUMENT...` and samples the stages of requests.

A timer on the CPU clock of the main thread, which runs the event loop, sends a signal at every tick of the kernel,
about 250 times per second of CPU time. Its handler appends the stage of the innermost function in `STAGES` to FILE.

Python handles a signal late: when a function starts, after a call, or when a loop repeats. So a signal in the C code of
the event loop is handled in the function that runs next. `interrupted` goes back to what ran before.
"""

import ctypes
import signal
import sys
import threading
import time
from collections import Counter
from dis import opmap
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import yaml

from dragoman.command_line import main

# The places of each stage; the narrowest one counts.
STAGES: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("stages.yaml").read_text("utf-8"))
# Sockets, timers and tasks, and whatever no stage has called.
EVENT_LOOP = "event loop"
# The operations after which Python handles signals; others follow an `await` without that.
RESUME, SEND, *CHECKS = (opmap[name] for name in ("RESUME", "SEND", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"))
AFTER_AWAIT = 2  # the least argument of `RESUME` that does not handle them either
INTERVAL_NANOSECONDS = 1_000_000
_STAGE_OF = {place: stage for stage, places in STAGES.items() for place in places}


@cache
def stage_of(code: CodeType, module: str) -> str | None:
    """Returns the stage of a function; None for that of its caller."""
    place = f"{module.removeprefix('dragoman.')}:{code.co_qualname.partition('.<locals>')[0]}"
    while place not in _STAGE_OF:
        cut = max(place.rfind("."), place.rfind(":"))
        if cut < 0:
            return None
        place = place[:cut]
    return _STAGE_OF[place]


@cache
def late_offsets(code: CodeType) -> dict[int, bool]:
    """Returns the operations that handle signals of earlier code, and whether it is the caller's: else the loop's."""
    found, awaited, operations = dict[int, bool](), False, code.co_code
    for offset in range(0, len(operations), 2):
        operation, argument = operations[offset : offset + 2]
        if operation == RESUME:
            awaited = argument >= AFTER_AWAIT
            if not awaited:
                found[offset] = True
        elif operation == SEND or (awaited and operation in CHECKS):
            found[offset], awaited = False, False
    return found


def interrupted(frame: FrameType | None) -> FrameType | None:
    """Returns the frame that ran when the signal came; None: the event loop."""
    while frame is not None:
        of_caller = late_offsets(frame.f_code).get(frame.f_lasti)
        if of_caller is None:
            return frame
        frame = frame.f_back if of_caller else None
    return None


def running_stage(frame: FrameType | None) -> str:
    """Returns the stage of a frame, or of the nearest frame below it that has one."""
    while frame is not None:
        if stage := stage_of(frame.f_code, frame.f_globals["__name__"]):
            return stage
        frame = frame.f_back
    return EVENT_LOOP


def read_samples(path: Path) -> Counter[str]:
    """Returns the number of samples of each stage so far."""
    return Counter(path.read_text(encoding="ascii").splitlines())


class _SignalEvent(ctypes.Structure):
    """A `struct sigevent` of Linux: `notify` 4 sends the signal to one thread."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("padding", ctypes.c_int * 12),
    )


def sample_into(path: Path) -> None:
    """Samples the main thread, which calls it; raises OSError if the system has no timers of CPU time."""
    file = path.open("ab", buffering=0)

    def sample(_number: int, frame: FrameType | None) -> None:
        file.write(f"{running_stage(interrupted(frame))}\n".encode())

    # Without a handler, this signal does nothing: it may still come while the process ends.
    signal.signal(signal.SIGURG, sample)
    library, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    event = _SignalEvent(None, signal.SIGURG, 4, threading.get_native_id())
    interval = (ctypes.c_long * 4)(0, INTERVAL_NANOSECONDS, 0, INTERVAL_NANOSECONDS)
    if library.timer_create(time.CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create failed")
    library.timer_settime(timer, 0, interval, None)


if __name__ == "__main__":
    sample_into(Path(sys.argv.pop(1)))
    main()
