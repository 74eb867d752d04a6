"""Bergamot and Marian hold the student of the benchmark, and their processes exchange lines of JSON."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.compared_model import made_up_tokenizer
from benchmarks.systems.marian_system import draw_sources, student, write_files
from benchmarks.systems.peer_system import Peer, PeerTranslator
from benchmarks.systems.translating import Batching
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.torch_weights import to_weights
from dragoman.model.config import Memory, TransformerConfig

TOKENS = 48
# Logs, and turns the words of each line around; translates no single sentence.
FAKE = """
class Translator:
    def __init__(self, options):
        self.beam = options.split("--beam-size ")[1][0]
        print("loaded", options)
    def translate(self, text):
        print("translates", text)
        lines = text.split(chr(10))
        if len(lines) == 1:
            raise ValueError(f"one line, beam {self.beam}")
        return chr(10).join(" ".join(reversed(line.split())) for line in lines)
"""


def write_student(folder: Path, peer: Peer, memory: Memory = "ssru") -> dict[str, np.ndarray]:
    config = TransformerConfig(d_model=32, d_ff=48, heads=4, encoder_layers=1, decoder_layers=2, decoder_memory=memory)
    model = student(config, TOKENS)
    write_files(folder, model, made_up_tokenizer(TOKENS).model, peer, "fp32")
    return dict(to_weights(model).parameters)


@pytest.mark.parametrize("memory", ["ssru", "self_attention"])
@pytest.mark.parametrize("peer", ["bergamot", "marian"])
def test_the_files_hold_the_weights_of_the_student(peer: Peer, memory: Memory, tmp_path: Path) -> None:
    weights = write_student(tmp_path / "m", peer, memory)
    found = import_marian_files(tmp_path / "m", ImportOptions("en", "de", 16, 24)).weights.parameters
    for name, value in weights.items():
        assert np.array_equal(found[name][: len(value)], value), name


def test_processes_share_the_sentences_and_return_them_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_student(tmp_path / "m", "marian")
    (tmp_path / "_pymarian.py").write_text(FAKE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    translator = PeerTranslator(str(tmp_path / "m"), 2, 1, peer="marian", python=sys.executable, precision="fp32")
    sources = draw_sources(5, TOKENS)
    expected = [list(source.source_ids[-2::-1]) for source in sources]
    assert translator.translate(sources, 1, Batching(8, "examples/2")) == expected
    assert len(set(translator.process_ids)) == 2
    with pytest.raises(BenchmarkError, match="pymarian: ValueError: one line, beam 4"):
        translator.translate(sources[:1], 4, Batching(8, "examples/1"))
    translator.close()
