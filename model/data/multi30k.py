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

from dragoman.model.errors import CorpusError

FOLDER_VARIABLE = "DRAGOMAN_MULTI30K"
HOME = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
LANGUAGES = ("cs", "de", "en", "fr")
SPLITS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
TIMEOUT_SECONDS = 30
# By file name, in the form of `sha256sum`.
_SUMS = Path(__file__).with_name("multi30k.sha256").read_text("ascii").split()
TEXT_SHA256 = dict(zip(_SUMS[1::2], _SUMS[::2], strict=True))


def default_folder() -> Path:
    """Returns the folder in `DRAGOMAN_MULTI30K`, or a cache in the user's home."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "dragoman" / "multi30k"


def multi30k_text(folder: Path, split: str, language: str) -> bytes:
    """Returns the text of one split and language; downloads its gzip file into the folder if it is missing.

    Raises CorpusError if the file can be neither found nor downloaded, or its text differs from the published one.
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
        raise CorpusError(
            f"{path}: not found, and the download of {url} failed ({error}): "
            f"provide the Multi30k files, or their folder with --multi30k-folder or {FOLDER_VARIABLE}"
        ) from error


def _read_published(path: Path) -> bytes:
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: expected a gzip file ({error}); delete it to download it again") from error
    digest = hashlib.sha256(text).hexdigest()
    if digest != TEXT_SHA256[path.name]:
        raise CorpusError(f"{path}: sha256 of the text: expected {TEXT_SHA256[path.name]}, got {digest}")
    return text
