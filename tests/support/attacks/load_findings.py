"""How a version of the server stands hostile bundles at a reload, and a hostile package at an import."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import copytree, rmtree

import httpx

from dragoman.serve.host.server_process import HOST
from tests.support.bundles import change_manifest, make_endless
from tests.support.floods import MEBIBYTE, Served, serve_under_attack

ADMIN_KEY = "admin"
# Longer than the limit of a load here.
ANSWER_SECONDS = 8.0
LIMITS = {"DRAGOMAN_LOAD_TIMEOUT_SECONDS": "3", "DRAGOMAN_STEP_TIMEOUT_SECONDS": "3"}
UNPACKED_BYTES = 1200 * MEBIBYTE
POLL_SECONDS = 0.05


def reload_findings(
    bundle: Path, environment: Mapping[str, str], kinds: Mapping[str, Callable[[Path], object]]
) -> Iterator[str]:
    """Yields what each kind of damage does to a reload and to other clients."""
    for name, damage in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            served_bundle = copytree(bundle, Path(folder) / "bundle")
            program = [sys.executable, "-m", "dragoman", "serve", str(served_bundle), "--host", HOST]
            program += ["--lame-duck-seconds", "0", "--admin-key", ADMIN_KEY]
            with serve_under_attack(program, Path(folder), environment={**environment, **LIMITS}) as served:
                yield f"{name}: {asyncio.run(_reload(served, bundle, served_bundle, damage))}"


async def _reload(served: Served, intact: Path, bundle: Path, damage: Callable[[Path], object]) -> str:
    """Reloads a damaged bundle, then the intact one, next to other clients."""
    await served.ask(2.0)
    before = served.usage()
    damage(bundle)
    traffic, answer = await asyncio.gather(served.ask(ANSWER_SECONDS + 1), _answer(served))
    rmtree(bundle)
    copytree(intact, bundle)
    next_answer = await _answer(served)
    after = served.usage()
    return (
        f"reload {answer}, next reload {next_answer}; others: {traffic.requests:,} requests, "
        f"{traffic.errors.total()} errors, p99 {traffic.percentile_ms(99):.1f} ms; memory "
        f"{before.memory_bytes / MEBIBYTE:.0f} / {after.memory_bytes / MEBIBYTE:.0f} MiB, descriptors "
        f"{before.descriptors} / {after.descriptors}, log {(after.log_bytes - before.log_bytes) / 1000:.0f} kB"
    )


async def _answer(served: Served) -> str:
    """Returns status and time of a reload, or that there was no answer."""
    begun_seconds = time.monotonic()
    async with httpx.AsyncClient(base_url=served.targets.rest, timeout=ANSWER_SECONDS, trust_env=False) as client:
        try:
            answer = await client.post("/v1/admin/reload", headers={"authorization": f"Bearer {ADMIN_KEY}"})
        except httpx.TimeoutException:
            return f"no answer in {ANSWER_SECONDS:.0f} s"
    return f"{answer.status_code} after {time.monotonic() - begun_seconds:.1f} s"


def endless(bundle: Path) -> None:
    """Adds a loop without end to the encoder."""
    make_endless(bundle)


def deep_manifest(bundle: Path) -> None:
    """Nests a manifest too deep."""
    (bundle / "manifest.json").write_text("[" * 100_000, encoding="ascii")


def huge_value(bundle: Path) -> None:
    """Writes a huge limit into a manifest."""
    change_manifest(bundle, lambda manifest: manifest.update(max_target_tokens=10**18))


ENDLESS = {"endless loop in the encoder": endless}
MANIFESTS = {"manifest nested 100,000 deep": deep_manifest, "max_target_tokens 10^18": huge_value}


def import_findings(environment: Mapping[str, str]) -> Iterator[str]:
    """Yields what the import of a package costs that grows a thousand times."""
    with tempfile.TemporaryDirectory() as folder:
        package, temporary = Path(folder) / "bomb.argosmodel", Path(folder) / "tmp"
        temporary.mkdir()
        _write_bomb(package)
        command = [sys.executable, "-m", "dragoman", "export", "--from-ctranslate2", str(package)]
        process = subprocess.Popen(
            [*command, "--out", str(Path(folder) / "out")],
            env={**environment, "TMPDIR": str(temporary)},
            stderr=subprocess.PIPE,
            text=True,
        )
        disk, memory = 0, 0
        while process.poll() is None:
            disk = max(disk, sum(file.stat().st_size for file in temporary.rglob("*") if file.is_file()))
            memory = max(memory, _peak_bytes(process.pid))
            time.sleep(POLL_SECONDS)
        lines = process.communicate()[1].splitlines()
        yield (
            f"package of {package.stat().st_size / MEBIBYTE:.1f} MiB: disk {disk / MEBIBYTE:,.0f} MiB, memory "
            f"{memory / MEBIBYTE:,.0f} MiB, exit status {process.returncode}, lines of error {len(lines)}"
        )


def _write_bomb(package: Path) -> None:
    """Writes a package whose model is one variable of zeros."""
    name = b"encoder/embeddings/weight\0"
    start = (6).to_bytes(4, "little") + (16).to_bytes(2, "little") + b"TransformerSpec\0"
    start += (7).to_bytes(4, "little") + (1).to_bytes(4, "little") + len(name).to_bytes(2, "little") + name
    rows = UNPACKED_BYTES // 4096
    start += bytes([2]) + rows.to_bytes(4, "little") + (1024).to_bytes(4, "little") + bytes([0])
    start += (rows * 4096).to_bytes(4, "little")
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("en_de/metadata.json", json.dumps({"from_code": "en", "to_code": "de"}))
        archive.writestr("en_de/model/config.json", "{}")
        archive.writestr("en_de/model/shared_vocabulary.json", json.dumps(["<unk>", "<s>", "</s>"]))
        with archive.open("en_de/model/model.bin", "w") as member:
            member.write(start)
            for _ in range(UNPACKED_BYTES // MEBIBYTE):
                member.write(bytes(MEBIBYTE))


def _peak_bytes(process_id: int) -> int:
    """Returns the peak of resident memory of a process, or 0 after its end."""
    try:
        status = Path(f"/proc/{process_id}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    _, found, rest = status.partition("VmHWM:")
    return int(rest.split()[0]) * 1024 if found else 0
