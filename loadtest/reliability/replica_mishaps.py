"""What may happen to one of several replicas, of which those who ask the others must notice nothing.

Called by `loadtest.reliability.chaos_command`.
"""

import signal

from loadtest.client import OK
from loadtest.generators import Generators
from loadtest.reliability.chaos import LATE, Mishap, nothing
from loadtest.reliability.replicas import Replicas
from loadtest.request import Protocol

LONGEST_SECONDS = 180.0
# Answered at once: a stream that has begun is not begun again elsewhere, neither by nginx nor by gRPC.
WHOLE: tuple[Protocol, ...] = ("grpc", "rest")
VICTIM = 1


async def restart_all(replicas: Replicas, _generators: Generators) -> None:
    """Restarts one after the other, and each only when the one before is in use again."""
    for number in range(len(replicas.each)):
        await restart(replicas, number)


async def restart(replicas: Replicas, number: int) -> None:
    """Restarts a replica, and waits until it is in use again."""
    served = replicas.each[number]
    await served.stop()
    served.start()
    await served.wait_ready()
    await replicas.wait_used(number)


async def replace(replicas: Replicas) -> None:
    """Does what those do who watch over processes that are not live."""
    victim = replicas.each[VICTIM]
    victim.kill()
    victim.start()
    await victim.wait_ready()


async def kill_and_start(replicas: Replicas, _generators: Generators) -> None:
    """Kills a replica and starts it again, and waits until it is in use again."""
    await replace(replicas)
    await replicas.wait_used(VICTIM)


async def stand_still(replicas: Replicas, _generators: Generators) -> None:
    """Makes a replica stand still for the rest of the round, and waits until it is left out."""
    replicas.each[VICTIM].send(signal.SIGSTOP)
    await replicas.left_out(VICTIM)


def replica_mishaps(protocols: tuple[Protocol, ...]) -> tuple[Mishap[Replicas], ...]:
    """Returns what may happen to replicas that are asked over some protocols."""
    whole = tuple(protocol for protocol in protocols if protocol in WHOLE)
    return (
        Mishap("nothing", nothing, frozenset({OK}), protocols=protocols),
        Mishap(
            "all replicas restarted in turn",
            restart_all,
            frozenset({OK}),
            protocols=protocols,
            longest_seconds=LONGEST_SECONDS,
        ),
        Mishap(
            "a replica killed and started again",
            kill_and_start,
            frozenset({OK}),
            clients_retry=True,
            protocols=whole,
            longest_seconds=LONGEST_SECONDS,
        ),
        Mishap(
            "a replica stands still",
            stand_still,
            LATE,
            clients_retry=True,
            protocols=whole,
            longest_seconds=LONGEST_SECONDS,
            mend=replace,
        ),
    )
