"""A process of Bergamot or Marian: `PYTHON peer_worker.py bergamot|pymarian`, with an interpreter that has the library.

Imports the standard library and the peer, and nothing of Dragoman. Every line of standard input and output is JSON:
`{"options": TEXT, "workers": THREADS}`, answered by `true` once the model is loaded; then `{"parts": [TEXTS, ...]}`,
answered by the translations of each part, which are translated together. With `--version`, prints the library's.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def open_library(name: str) -> Any:
    """Returns a library; that of Bergamot without its package, which asks the network for models."""
    if name == "pymarian":
        return import_module("_pymarian")
    package: Any = find_spec("bergamot") or import_module("bergamot")
    (path,) = Path(package.origin).parent.glob("_bergamot.*.so")
    spec: Any = spec_from_file_location("bergamot._bergamot", path)
    library = module_from_spec(spec)
    spec.loader.exec_module(library)
    return library


def load(library: Any, options: str, workers: int) -> "Callable[[list[str]], list[str]]":
    """Loads a model; returns what translates texts together."""
    if hasattr(library, "Translator"):
        translator = library.Translator(options)
        return lambda texts: list(translator.translate("\n".join(texts)).split("\n"))
    service = library.Service(library.ServiceConfig(numWorkers=workers, cacheSize=0, logLevel="off"))
    model = service.modelFromConfig(options)
    names = ("qualityScores", "alignment", "HTML", "sentenceMappings")
    wanted = library.ResponseOptions(**dict.fromkeys(names, False))
    return lambda texts: [item.target.text for item in service.translate(model, library.VectorString(texts), wanted)]


def main(name: str, *flags: str) -> None:
    """Translates until standard input ends."""
    library = open_library(name)
    if flags:
        print(version(name))
        return
    # The libraries log to standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    translate = load(library, **json.loads(sys.stdin.readline()))
    print("true", file=answers, flush=True)
    for line in sys.stdin:
        found = [translate(texts) if texts else [] for texts in json.loads(line)["parts"]]
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
