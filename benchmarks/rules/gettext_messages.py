"""Translates messages of real programs and lets gettext check them.

`python -m benchmarks.rules.gettext_messages URL FILE.mo... --count 2000` needs `msgfmt` (Debian's gettext) and a server
at URL with documents. Compiled files hold no flags, so the flags follow from the content. The program
prints the errors of `msgfmt --check` that the same file with copied sources does not have, and exits with 1 if there
are any.
"""

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import httpx
import polib

C_FORMAT = re.compile(r"%(?:\d+\$)?[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[jztL])?[diouxXeEfFgGaAcsp]")
PYTHON_FORMAT = re.compile(r"%\(\w+\)[-+ #0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]")
HEADER = {
    "Content-Type": "text/plain; charset=UTF-8",
    "Content-Transfer-Encoding": "8bit",
    "Language": "de",
    "Plural-Forms": "nplurals=2; plural=n != 1;",
}
PROBLEM = re.compile(r"^[^:]+:(\d+): (.*)$", re.MULTILINE)
TIMEOUT_SECONDS = 600.0


def read_entries(files: Iterable[Path]) -> list[polib.POEntry]:
    """Returns the messages of compiled files without their translations; each once."""
    entries = dict[tuple[str, str], polib.POEntry]()
    for file in files:
        for entry in polib.mofile(str(file)):
            source = f"{entry.msgid}{entry.msgid_plural}"
            if any(character.isalpha() for character in source):
                entries.setdefault((entry.msgctxt or "", entry.msgid), _untranslated(entry, source))
    return list(entries.values())


def _untranslated(entry: polib.MOEntry, source: str) -> polib.POEntry:
    flags = ["python-format"] if PYTHON_FORMAT.search(source) else ["c-format"] if C_FORMAT.search(source) else []
    plural = {0: "", 1: ""} if entry.msgid_plural else {}
    return polib.POEntry(
        msgid=entry.msgid, msgid_plural=entry.msgid_plural, msgctxt=entry.msgctxt, msgstr_plural=plural, flags=flags
    )


def write_file(entries: Iterable[polib.POEntry], file: Path) -> None:
    """Writes messages as a file of German translations."""
    written = polib.POFile(wrapwidth=0)
    written.metadata = HEADER
    written.extend(entries)
    written.save(str(file))


def translate(url: str, content: bytes) -> bytes:
    """Returns the translated file; raises TimeoutError if the server does not translate it in time."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        fields = {"source_language": "en", "target_language": "de", "placeholders": "all"}
        created = client.post("/v1/documents", data=fields, files={"file": ("a.po", content)})
        path = created.raise_for_status().headers["location"]
        end_seconds = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < end_seconds:
            job = client.get(path).json()
            if job["status"] == "done":
                return client.get(f"{path}/result").raise_for_status().content
            if job["status"] == "failed":
                sys.exit(f"the file was not translated: {job['error']}")
            time.sleep(0.2)
    raise TimeoutError(f"the file was not translated in {TIMEOUT_SECONDS:g} seconds")


def accept(file: Path) -> None:
    """Removes the marks of machine translations, whose messages gettext does not check."""
    written = polib.pofile(str(file), wrapwidth=0)
    for entry in written:
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
    written.save()


def problems(file: Path) -> dict[str, str]:
    """Returns what `msgfmt --check` finds: problems by the message that has them."""
    checked = subprocess.run(
        [str(which("msgfmt")), "--check", f"--output-file={file}.mo", file], check=False, capture_output=True, text=True
    )
    lines = {entry.linenum: entry.msgid for entry in polib.pofile(str(file))}
    found = dict[str, str]()
    for line, problem in PROBLEM.findall(checked.stderr):
        start = max((number for number in lines if number <= int(line)), default=0)
        found.setdefault(lines.get(start, ""), problem)
    return found


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("url")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.mo")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="where the translated file goes")
    given = parser.parse_args()
    entries = read_entries(given.files)
    entries = random.Random(0).sample(entries, min(given.count, len(entries)))
    with TemporaryDirectory() as folder:
        source, copied, translated = (Path(folder) / f"{name}.po" for name in ("source", "copied", "translated"))
        write_file(entries, source)
        translated.write_bytes(translate(given.url, source.read_bytes()))
        accept(translated)
        for entry in entries:
            entry.msgstr = "" if entry.msgid_plural else entry.msgid
            entry.msgstr_plural = {0: entry.msgid, 1: entry.msgid_plural} if entry.msgid_plural else {}
        write_file(entries, copied)
        known, found = problems(copied), problems(translated)
        if given.out is not None:
            given.out.write_bytes(translated.read_bytes())
    new = {message: problem for message, problem in found.items() if message not in known}
    for message, problem in new.items():
        print(f"{message!r}: {problem}")
    print(f"{len(entries)} messages, {len(known)} with a problem of the source, {len(new)} with a new one")
    sys.exit(1 if new else 0)


if __name__ == "__main__":
    main()
