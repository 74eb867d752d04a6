"""Attackers as a process of the lowest priority, and a process that only uses as much of the CPU.

`python -m tests.support.attacks.run JSON` attacks as the fields of `Attack` describe and prints an `Outcome`.
"""

import asyncio
import json
import os
import ssl
import sys
import time
from dataclasses import asdict, dataclass

from tests.support.attacks.families import FAMILIES, Flood
from tests.support.attacks.link import Target

LOWEST_PRIORITY = 19
SLICE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack of one family.

    Attributes:
        name: of the family; empty: uses `cpu_seconds` of the CPU instead.
        port: that of the family's protocol.
        ca, certificate, key: paths of PEM files; with `ca`, connections use TLS.
    """

    name: str
    port: int
    seconds: float
    cpu_seconds: float = 0.0
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def target(self) -> Target:
        if not self.ca:
            return Target(self.port)
        context = ssl.create_default_context(cafile=self.ca)
        if FAMILIES[self.name].port == "grpc":
            context.set_alpn_protocols(["h2"])
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return Target(self.port, context)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the server answered an attack, see `Flood`, and what the attackers used of the CPU in seconds."""

    answers: dict[str, int]
    open: int
    cpu_seconds: float


async def run_attack(attack: Attack) -> Outcome:
    """Runs an attack in a process of the lowest priority."""
    module = [sys.executable, "-m", "tests.support.attacks.run", json.dumps(asdict(attack))]
    process = await asyncio.create_subprocess_exec(*module, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await process.communicate()
    except BaseException:
        process.kill()
        raise
    return Outcome(**json.loads(output))


def _attack(attack: Attack) -> Outcome:
    if not attack.name:
        _burn(attack.seconds, attack.cpu_seconds)
        return Outcome({}, 0, time.process_time())
    flood = Flood(FAMILIES[attack.name], attack.target())
    asyncio.run(flood.run(attack.seconds))
    return Outcome(dict(flood.answers), flood.most_open, time.process_time())


def _burn(seconds: float, cpu_seconds: float) -> None:
    """Uses the CPU evenly over the time."""
    begun_seconds = time.monotonic()
    while (elapsed_seconds := time.monotonic() - begun_seconds) < seconds:
        if time.process_time() > cpu_seconds * elapsed_seconds / seconds:
            time.sleep(SLICE_SECONDS)


if __name__ == "__main__":
    os.nice(LOWEST_PRIORITY)
    print(json.dumps(asdict(_attack(Attack(**json.loads(sys.argv[1]))))))
