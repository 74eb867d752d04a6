"""Checkpoints in shards with an index, as `transformers` stores large ones."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

INDEX = "model.safetensors.index.json"
PICKLED_INDEX = "pytorch_model.bin.index.json"


def split_checkpoint(folder: Path, index: str = INDEX, count: int = 3) -> list[str]:
    """Replaces model.safetensors by an index, which determines the format, and shards; returns their names."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem, suffix = index.split(".")[:2]
    places: dict[str, str] = {}
    for number in range(count):
        part = sorted(tensors)[number::count]
        shard = f"{stem}-{number + 1:05}-of-{count:05}.{suffix}"
        own = {name: tensors[name] for name in part}
        if suffix == "bin":
            torch.save(own, folder / shard)
        else:
            save_file(own, folder / shard, {"format": "pt"})
        places |= dict.fromkeys(part, shard)
    write_index(folder / index, places.items())
    return sorted(set(places.values()))


def write_index(path: Path, places: Iterable[tuple[str, object]]) -> None:
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": dict(places)}))


def read_places(path: Path) -> dict[str, str]:
    places: dict[str, str] = json.loads(path.read_text())["weight_map"]
    return places
