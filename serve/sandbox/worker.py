"""A worker: a forked process that calls parsers, with nothing that is worth to steal and limits of the kernel.

It has its control socket and the null device as its only files, no environment, and no way to write a file. It ends
with the template, and after a call with a large input, with much memory, or with an error of the parser.
"""

import contextlib
import ctypes
import gc
import json
import math
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from dragoman.serve.sandbox import frames

MEBIBYTE = 1 << 20
SECONDS_PER_MEBIBYTE = 4
# The niceness of workers lets other processes of a busy machine run before them.
WALL_SECONDS_PER_CPU_SECOND = 6.0

# Parsers of different purposes run at the same time, those of one purpose one after the other.
Purpose = Literal["documents", "glossaries", "memory", "forms", "probes"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call.

    Attributes:
        memory_bytes: of the address space, beyond that of an idle worker.
        cpu_seconds, wall_seconds: from the start of the call, without the time in the queue.
        output_bytes: of all frames of the result.
    """

    memory_bytes: int
    cpu_seconds: int
    wall_seconds: float
    output_bytes: int

    @classmethod
    def of_input(cls, input_bytes: int, *, memory_bytes: int, output_bytes: int, base_seconds: int) -> "Limits":
        """Returns limits whose time grows with the input, for parsers that take linear time."""
        cpu_seconds = base_seconds + math.ceil(SECONDS_PER_MEBIBYTE * input_bytes / MEBIBYTE)
        return cls(memory_bytes, cpu_seconds, WALL_SECONDS_PER_CPU_SECOND * cpu_seconds, output_bytes)


# Takes the items of the call, and yields those of the result.
Parser = Callable[[list[frames.Item]], Iterable[frames.Item]]

# A parser that only shows that a worker runs.
PROBE = "probe"
MEMORY_STATUS = 70
MAX_REQUEST_BYTES = 4096
NICENESS = 5
MAX_OPEN_FILES = 64
NEVER = (1 << 31) - 1
# The message on the control socket of a worker that can take a further call.
READY = b"ready"
MAX_SMALL_INPUT_BYTES = 64 << 10
# Address space that small calls may leave behind.
MAX_KEPT_BYTES = 16 * MEBIBYTE
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
_LIBC = ctypes.CDLL(None)


class Refusal(Exception):  # noqa: N818 - the input is at fault, not the parser
    """Input that a parser refuses; its arguments are values of JSON."""


def end_with_parent() -> None:
    """Lets the kernel kill this process when its parent ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def confine(control: int, parent: int) -> None:
    """Takes from this process what no parser needs; only `control` and the null device stay open."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    # The standard input of the template is the null device.
    os.dup2(0, 1)
    os.dup2(0, 2)
    os.closerange(3, control)
    os.closerange(control + 1, os.sysconf("SC_OPEN_MAX"))
    _LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        # If memory is short, the kernel ends a parser before a server.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)


def work(control: socket.socket, parsers: dict[str, Parser]) -> NoReturn:
    """Answers one call after the other; ends the process after one that may leave traces."""
    # During a call, full collections would traverse each text again and again.
    gc.set_threshold(*gc.get_threshold()[:2], NEVER)
    idle_bytes = _size_bytes()
    while True:
        request, files, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 1)
        if not files:
            os._exit(0)
        name, limits = json.loads(request)
        _limit_call(Limits(**limits))
        try:
            with socket.socket(fileno=files[0]) as end:
                is_small = _answer(end, parsers[name])
                if not is_small or _size_bytes() > idle_bytes + MAX_KEPT_BYTES:
                    os._exit(0)
                # Before the socket closes: then the server leaves, and the template kills a worker that is not ready.
                control.send(READY)
        except MemoryError:
            os._exit(MEMORY_STATUS)
        except BaseException:  # noqa: BLE001 - the server has left; the status is enough
            os._exit(1)
        gc.collect()


def _answer(end: socket.socket, parse: Parser) -> bool:
    """Returns whether the input was small and the parser made no error."""
    items = _Items(end)
    try:
        # The server reads the result when it has sent everything.
        for content in frames.encode(parse(list(items))):
            end.sendall(content)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        if "out of memory" in str(error):  # in the words of expat
            raise MemoryError from error
        if isinstance(error, Refusal):
            end.sendall(frames.frame(frames.REFUSAL, frames.encode_json(error.args)))
        else:
            end.sendall(frames.frame(frames.FAILURE, frames.encode_json(_describe(error))))
            return False
    return items.size_bytes <= MAX_SMALL_INPUT_BYTES


def _describe(error: Exception) -> str:
    """Returns the kind of an error and its lines, without values, which may be texts of clients."""
    lines, traceback = list[str](), error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        lines.append(f"{Path(code.co_filename).name}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return f"{type(error).__name__}: {', '.join(lines[-8:])}"


class _Items:
    """The items of a call; `size_bytes`: of the frames that have been read."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.size_bytes = 0

    def __iter__(self) -> Iterator[frames.Item]:
        decoder = frames.Decoder()
        with self._end.makefile("rb") as file:
            while True:
                header = file.read(frames.HEADER_BYTES)
                if len(header) < frames.HEADER_BYTES:
                    raise ConnectionResetError
                kind, length = frames.read_header(header)
                if kind == frames.END:
                    return
                content = file.read(length)
                if len(content) < length:
                    raise ConnectionResetError
                self.size_bytes += length
                yield from decoder.decode(kind, content)


def _size_bytes() -> int:
    """Returns the size of the address space."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _limit_call(limits: Limits) -> None:
    """Sets the limits of a call in place of those of the last one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_AS, _size_bytes() + limits.memory_bytes, softly=True)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + limits.cpu_seconds, softly=True)


def _limit(what: int, most: int, *, softly: bool = False) -> None:
    """Sets a limit, which this process can raise again only `softly`."""
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, hard if softly else most))
