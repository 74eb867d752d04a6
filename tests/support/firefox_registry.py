"""The registry of Firefox Translations and its files, with the real layout, for the hub of `fake_hub`."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.large_models import Form
from tests.support.marian_student import Student, write_random_student, write_shortlist, write_student

REGISTRY_PATH = "db/models.json"
SHORTLIST_NAME = "lex.50.50.s2t.bin"
# By the beginning of a file's name.
ROLES = {"model": "model", "vocab": "vocab", "srcvocab": "srcVocab", "trgvocab": "trgVocab", "lex": "lexicalShortlist"}


@dataclass
class FirefoxRegistry:
    """What the registry states, and the packed files by path."""

    records: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def add(
        self,
        pair: str,
        contents: Mapping[str, bytes],
        *,
        architecture: str = "tiny",
        status: str | None = "Release",
        chrf: float | None = 50.0,
    ) -> dict[str, Any]:
        """Adds a record with its files and returns it; each of several records has a folder of its own."""
        source, target = pair.split("-")
        files = {}
        for name, content in contents.items():
            path = f"models/{pair}/student{len(self.records)}_{architecture}/exported/{name}.gz"
            self.files[path] = _pack(content)
            files[ROLES[name.partition(".")[0]]] = {
                "path": path,
                "uncompressedSize": len(content),
                "uncompressedHash": hashlib.sha256(content).hexdigest(),
            }
        scores = {} if chrf is None else {"bleu": chrf / 2, "chrfpp": chrf, "comet22": chrf / 100}
        record = {
            "architecture": architecture,
            "sourceLanguage": source,
            "targetLanguage": target,
            "releaseStatus": status,
            "files": files,
            "metrics": {"flores200-plus": scores, "another test set": [1, 2]},
        }
        self.records.append(record)
        return record

    def document(self, base_address: str) -> bytes:
        """Returns the registry as JSON."""
        models: dict[str, list[dict[str, Any]]] = {}
        for record in self.records:
            models.setdefault(f"{record['sourceLanguage']}-{record['targetLanguage']}", []).append(record)
        return json.dumps({"generated": "2026-09-30T00:44:58Z", "baseUrl": base_address, "models": models}).encode()


@cache
def _pack(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


@cache
def large_student_files(folder: Path, form: Form) -> Mapping[str, bytes]:
    """Returns the files of a random model of any size, with two layers of the decoder, written into a new folder."""
    written = folder / f"student-{form.width}"
    write_random_student(written, form, 2)
    return {path.name: path.read_bytes() for path in sorted(written.iterdir())}


@cache
def student_files(folder: Path, *, separate: bool = False, seed: int = 3) -> Mapping[str, bytes]:
    """Returns the files of a random student, written into a new folder, and a shortlist."""
    written = write_student(folder / f"student-{seed}-{separate}", Student(seed).eval(), "bin", separate=separate)
    write_shortlist(written / SHORTLIST_NAME)
    return {path.name: path.read_bytes() for path in sorted(written.iterdir())}
