"""Draws the attention of a translation over REST: `python -m examples.attention_map TEXT FILE.svg`.

The server needs one model with alignment heads and one direction: `dragoman serve bundles/multi30k-en-de`. Each row
of the map is a word of the translation, each column a word of the text.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

SERVER = "http://127.0.0.1:8000"
# Inches of a word on an axis, and of the margins.
WORD, MARGIN = 0.3, 1.5


def main(text: str, path: Path) -> None:
    """Translates a text and draws its attention."""
    (translation,) = post(f"{SERVER}/v1/translate", {"text": text})["translations"]
    draw(text, translation["text"], path, SERVER)


def draw(text: str, given: str, path: Path, server: str) -> None:
    """Draws the attention of a given translation, the mean over all layers and heads."""
    pair = {"text": text, "translation": given}
    (attention,) = post(f"{server}/v1/attention", {"pairs": [pair]})["attentions"]
    words = attention["alignment"]
    columns, rows = cut(text, words["source"]), cut(attention["translation"], words["target"])
    figure = Figure(figsize=(MARGIN + WORD * len(columns), MARGIN + WORD * len(rows)), layout="constrained")
    panel = figure.subplots()
    panel.imshow(words["weights"], cmap="Blues", vmin=0, vmax=1)
    # A dollar sign is a word, not the start of a formula.
    panel.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
    panel.set_yticks(range(len(rows)), rows, parse_math=False)
    panel.xaxis.tick_top()
    figure.savefig(path)


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON response of a request with a JSON body; raises URLError if the server rejects it."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310 - HTTP only
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - HTTP only
        return dict(json.load(response))


def cut(text: str, spans: list[dict[str, int]]) -> list[str]:
    """Returns the characters of each span."""
    return [text[span["start"] : span["end"]] for span in spans]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
