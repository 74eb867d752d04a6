"""Each interface keeps what docs/versions.md promises, compared with the lines of the last release.

`UPDATE_PROMISES=1 pytest tests/snapshots/test_promises_of_versions.py` stores them anew: for a release, or for a change
that breaks a promise and has its entry in the changelog.
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.text_format import Parse

from dragoman import Translator
from dragoman.protos.translation_pb2 import DESCRIPTOR
from tests.snapshots import promised
from tests.snapshots.snapshot import DATA
from tests.support.cases import cases

STORED = Path(__file__).parent / "promised"
FILE = FileDescriptorProto()
DESCRIPTOR.CopyToProto(FILE)


# Other tests compare these snapshots with the interfaces.
PROMISES: dict[str, tuple[Callable[[str], Iterable[str]], str]] = {
    "REST": (lambda text: promised.rest(json.loads(text)), "openapi.json"),
    "gRPC": (lambda text: promised.grpc(Parse(text, FileDescriptorProto())), ""),
    "bundle format": (lambda text: promised.manifest(json.loads(text)), "manifest_schema.json"),
    "settings": (promised.settings, "settings.txt"),
    "metrics": (lambda text: re.findall(r"^dragoman_\S+ \w+ \{.*?\}", text, re.MULTILINE), "metrics.txt"),
    "errors": (lambda text: re.findall(r"^\w+ \| \w+ \| \d+", text, re.MULTILINE), "errors.txt"),
}


def read(name: str) -> str:
    return (DATA / PROMISES[name][1]).read_text(encoding="utf-8") if PROMISES[name][1] else str(FILE)


@pytest.mark.parametrize("name", PROMISES)
def test_an_interface_keeps_its_promise(name: str) -> None:
    path, current = STORED / f"{name.replace(' ', '_')}.txt", {*PROMISES[name][0](read(name))}
    if os.environ.get("UPDATE_PROMISES") == "1":
        path.write_text("\n".join(sorted(current)) + "\n", encoding="utf-8")
    assert promised.broken(name, {*path.read_text(encoding="utf-8").splitlines()}, current) == []


@pytest.mark.parametrize(("name", "old", "new", "expected"), cases(__file__)["changes"])
def test_additions_pass_and_a_change_that_breaks_a_promise_is_named(
    name: str, old: str, new: str, expected: str | None
) -> None:
    lines, text = PROMISES[name][0], read(name)
    assert old in text
    found = promised.broken(name, {*lines(text)}, {*lines(text.replace(old, new, 1))})
    assert found == [] if expected is None else found[0].startswith(expected)


def test_a_bundle_of_the_first_promised_format_translates() -> None:
    """Its golden sentences are translated before the model is ready."""
    with Translator(STORED / "bundle") as translator:
        assert translator.translate("bird").text
