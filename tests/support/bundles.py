"""Changes bundles: their manifests, the hashes in them, and their graphs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from dragoman.serve.bundle.bundle import ENCODER_FILE, MANIFEST_FILE, file_hashes


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / MANIFEST_FILE
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def reseal(folder: Path) -> Path:
    """Updates the hashes in the manifest after a file was changed; returns the folder."""
    change_manifest(folder, lambda manifest: manifest.update(files=dict(file_hashes(folder))))
    return folder


def make_endless(folder: Path) -> Path:
    """Adds a loop of 2^62 rounds to the encoder of a bundle; returns the folder."""
    model = onnx.load(folder / ENCODER_FILE, load_external_data=False)
    for node in model.graph.node:
        node.input[:] = ["after_loop" if name == "source_ids" else name for name in node.input]
    carried = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("carried", "next")]
    condition = [helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in ("go", "goes")]
    round_number = helper.make_tensor_value_info("round", TensorProto.INT64, ())
    body = helper.make_graph(
        [helper.make_node("Identity", ["carried"], ["next"]), helper.make_node("Identity", ["go"], ["goes"])],
        "body",
        [round_number, condition[0], carried[0]],
        [condition[1], carried[1]],
    )
    model.graph.initializer.append(helper.make_tensor("rounds", TensorProto.INT64, (), [2**62]))
    model.graph.node.insert(0, helper.make_node("Loop", ["rounds", "", "source_ids"], ["after_loop"], body=body))
    onnx.save(model, folder / ENCODER_FILE)
    return reseal(folder)
