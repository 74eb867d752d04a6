"""Multi30k: image captions in English, German, French and Czech (Elliott et al. 2016, arXiv:1605.00459).

The files come from a folder, or are downloaded once. The checksums are of the decompressed text, because a file may
have been recompressed. The owners of Flickr30k, the origin of the captions, offer the data for non-commercial research
and education.
"""

import gzip
import hashlib
import os
import shutil
import tempfile
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

FOLDER_VARIABLE = "DRAGOMAN_MULTI30K"
HOME = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
LANGUAGES = ("cs", "de", "en", "fr")
SPLITS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
TIMEOUT_SECONDS = 30

TEXT_SHA256 = {
    "test_2016_flickr.cs.gz": "45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8",
    "test_2016_flickr.de.gz": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.en.gz": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.fr.gz": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "train.cs.gz": "2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da",
    "train.de.gz": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.en.gz": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.fr.gz": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "val.cs.gz": "d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33",
    "val.de.gz": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.en.gz": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.fr.gz": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
}


class Multi30kError(Exception):
    """The data set is not available; the message explains how to provide it."""


def default_folder() -> Path:
    """Returns the folder in `DRAGOMAN_MULTI30K`, or a cache in the user's home."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "dragoman" / "multi30k"


def multi30k_text(folder: Path, split: str, language: str) -> bytes:
    """Returns the text of one split and language; downloads its gzip file into the folder if it is missing.

    Raises:
        Multi30kError: if the file can be neither found nor downloaded, or its text differs from the published one.
    """
    name = f"{SPLITS[split]}.{language}.gz"
    path = folder / name
    if not path.is_file():
        _fetch(f"{HOME}/{name}", path)
    return _read_published(path)


def _fetch(url: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The temporary folder is in the same file system, so that the file appears complete or not at all.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as workshop:
            download = Path(workshop) / path.name
            with (
                urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,  # noqa: S310  the scheme is https
                download.open("wb") as file,
            ):
                shutil.copyfileobj(response, file)
            download.replace(path)
    except (OSError, HTTPException) as error:
        raise Multi30kError(
            f"{path}: not found, and the download of {url} failed ({error}): "
            f"provide the Multi30k files, or their folder with --multi30k-folder or {FOLDER_VARIABLE}"
        ) from error


def _read_published(path: Path) -> bytes:
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise Multi30kError(f"{path}: expected a gzip file ({error}); delete it to download it again") from error
    digest = hashlib.sha256(text).hexdigest()
    if digest != TEXT_SHA256[path.name]:
        raise Multi30kError(f"{path}: sha256 of the text: expected {TEXT_SHA256[path.name]}, got {digest}")
    return text
