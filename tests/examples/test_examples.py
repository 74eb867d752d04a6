"""The programs of `examples` run against a server."""

import re
from pathlib import Path

import pytest

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from examples import attention_map, streamed_text
from tests.support.live import LiveService, run_service

pytestmark = pytest.mark.usefixtures("restored_logs")

TEXT = "alpha beta gamma"


def test_a_map_has_the_words_of_both_sides(aligned_bundle: Bundle, tmp_path: Path) -> None:
    if reason := why_no_kernels():
        pytest.skip(reason)
    path = tmp_path / "map.svg"
    with run_service(aligned_bundle.folder, [], alignments=True) as live:
        attention_map.draw(TEXT, "gamma alpha", path, live.http_url)
    labels = re.findall("<!-- (.*) -->", path.read_text("utf-8"))
    assert labels == [*TEXT.split(), "gamma", "alpha"]


def test_the_parts_of_a_stream_are_the_translation(live: LiveService, capsys: pytest.CaptureFixture[str]) -> None:
    streamed_text.main(TEXT, live.grpc_target)
    assert capsys.readouterr().out == f"{live.post({'text': TEXT}).json()['translations'][0]['text']}\n"
