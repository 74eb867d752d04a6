"""Which files hold the parameters of a checkpoint: one, or shards that an index names. Imports nothing that takes long.

An index is a JSON object; its `weight_map` has the file of each tensor.
"""

import re
from pathlib import Path

from dragoman.serve.bundle.files import read_json

INDEX_SUFFIX = ".index.json"
# The first file that exists is read; the order is that of `transformers`.
WEIGHT_FILES = (
    "model.safetensors",
    f"model.safetensors{INDEX_SUFFIX}",
    "pytorch_model.bin",
    f"pytorch_model.bin{INDEX_SUFFIX}",
)
# The shards stay open during a conversion.
MAX_SHARDS = 256
# A name next to the index, which no separator and no leading dot moves elsewhere.
_PLAIN_NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)


def is_index(name: str) -> bool:
    """Returns whether a file of `WEIGHT_FILES` is an index."""
    return name.endswith(INDEX_SUFFIX)


def read_index(path: Path) -> dict[str, set[str]]:
    """Returns the tensors of each shard next to the index, by file; raises OSError or ValueError for a bad index."""
    content = read_json(path)
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not files:
        raise ValueError("weight_map: expected an object with the file of each tensor")
    suffix = Path(path.name.removesuffix(INDEX_SUFFIX)).suffix
    shards: dict[str, set[str]] = {}
    for tensor, name in files.items():
        if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name) or not name.endswith(suffix):
            raise ValueError(f"weight_map: {tensor}: {name!r}: expected a file *{suffix} next to the index")
        shards.setdefault(name, set()).add(tensor)
    if len(shards) > MAX_SHARDS:
        raise ValueError(f"weight_map: {len(shards)} files, expected at most {MAX_SHARDS}")
    return shards
