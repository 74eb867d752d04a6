"""The console output of `dragoman demo` with a shipped bundle equals its snapshot, except for measured values."""

import json
import os
import re
import sys
from typing import Any

import pytest

from dragoman.command_line import main
from tests.snapshots.snapshot import check
from tests.support.paths import ROOT

BUNDLE = ROOT / "bundles" / "multi30k-en-de"
COLUMNS = re.compile(r" {2,}")
PORT = re.compile(r"(127\.0\.0\.1:|-port )\d+")


def shape_of(document: Any) -> Any:
    """Returns a JSON document with types in place of texts and numbers."""
    if isinstance(document, dict):
        return {name: shape_of(value) for name, value in document.items()}
    if isinstance(document, list):
        return [shape_of(value) for value in document]
    return type(document).__name__


def normalize(line: str) -> str:
    """Returns a line without ports, translations, scores, durations, and widths of columns, which depend on these."""
    if line.startswith("{"):
        return json.dumps(shape_of(json.loads(line)))
    cells = COLUMNS.split(line)
    if cells[-1] in ("REST", "gRPC"):
        source, _, score, milliseconds, protocol = cells
        float(score)
        float(milliseconds)
        cells = [source, "TRANSLATION", "SCORE", "MILLISECONDS", protocol]
    return PORT.sub(r"\1PORT", " | ".join(cells)).replace(str(ROOT), "ROOT")


def test_the_demo_equals_its_snapshot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(name)
    arguments = ["demo", str(BUNDLE), "--oneshot", "--http-port", "0", "--grpc-port", "0"]
    monkeypatch.setattr(sys, "argv", ["dragoman", *arguments])
    main()
    check("demo.txt", "\n".join(map(normalize, capsys.readouterr().out.splitlines())))
