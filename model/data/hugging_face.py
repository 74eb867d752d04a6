"""Parallel text from Hugging Face data sets: on the hub, saved to disk, or in a table file.

A specification is `NAME:SOURCE-TARGET` or `NAME:CONFIG:SOURCE-TARGET`. NAME is a data set of the hub, a folder or a
file (.csv, .tsv, .json, .jsonl, .parquet, also with .gz). The text is in a column `translation` of {language: text}, or
in one column per language. The library is imported on first use.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.model.errors import CorpusError

# The library's reader and its options, by file suffix. A cell with NA is text, not a missing value.
_TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}
_TRANSLATION = "translation"


def read_hugging_face(specification: str, split: str) -> tuple[str, str, list[str], list[str]]:
    """Returns source language, target language, sources and targets of one direction of a data set.

    A file or a saved Dataset has no parts and is read whole, whatever the `split`. Line breaks become spaces. Raises
    CorpusError if the data set, part, column or language is missing, or a text is not a string.
    """
    origin = f"hf:{specification}"
    name, _, pair = specification.rpartition(":")
    source, _, target = pair.partition("-")
    if not name or not source or not target:
        raise CorpusError(f"{origin}: expected hf:NAME:SOURCE-TARGET or hf:NAME:CONFIG:SOURCE-TARGET")
    data = _load(origin, name)
    if isinstance(data, dict):
        if split not in data:
            raise CorpusError(f"{origin}: expected one of the parts {', '.join(map(str, data))}, got {split}")
        data = data[split]
    sides = _columns(origin, data, source, target)
    pairs = [(_text(origin, row, source, s), _text(origin, row, target, t)) for row, (s, t) in enumerate(sides)]
    return source, target, [s for s, _ in pairs], [t for _, t in pairs]


def has_split(specification: str, split: str) -> bool:
    """Returns whether a data set has this part; raises CorpusError if the data set cannot be loaded."""
    data = _load(f"hf:{specification}", specification.rpartition(":")[0])
    return isinstance(data, dict) and split in data


def _load(origin: str, name: str) -> Any:
    """Returns a Dataset, or a DatasetDict (a dict) by split."""
    try:
        import datasets  # noqa: PLC0415  heavy, and only this kind of data needs it
    except ImportError as error:
        raise CorpusError(f"{origin}: needs the package datasets; install the extra `train`") from error
    path = Path(name)
    suffix = Path(name.removesuffix(".gz")).suffix
    if path.is_file() and suffix not in _TABLES:
        raise CorpusError(f"{origin}: expected a file with one of the suffixes {', '.join(_TABLES)}")
    try:
        if path.is_file():
            reader, options = _TABLES[suffix]
            return datasets.load_dataset(reader, data_files=str(path), split="train", **options)
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            return datasets.load_from_disk(str(path))
        if path.is_dir():
            return datasets.load_dataset(str(path))
        name, _, configuration = name.partition(":")
        return datasets.load_dataset(name, configuration or None)
    except Exception as error:  # the readers, the network and the hub raise any type
        raise CorpusError(f"{origin}: cannot be loaded: {' '.join(str(error).split())}") from error


def _columns(origin: str, data: Any, source: str, target: str) -> Iterator[tuple[object, object]]:
    names = data.column_names
    if source in names and target in names:
        return zip(data[source], data[target], strict=True)
    if _TRANSLATION not in names:
        raise CorpusError(
            f"{origin}: expected the columns {source} and {target}, or {_TRANSLATION}, got {', '.join(names)}"
        )
    return _translations(origin, data[_TRANSLATION], source, target)


def _translations(origin: str, column: Any, source: str, target: str) -> Iterator[tuple[object, object]]:
    for row, translation in enumerate(column):
        if not isinstance(translation, dict):
            raise CorpusError(f"{origin}: row {row}: {_TRANSLATION}: expected a mapping, got {translation!r}")
        for language in (source, target):
            if language not in translation:
                raise CorpusError(f"{origin}: row {row}: expected language {language}, got {', '.join(translation)}")
        yield translation[source], translation[target]


def _text(origin: str, row: int, language: str, value: object) -> str:
    if not isinstance(value, str):
        raise CorpusError(f"{origin}: row {row}: {language}: expected a string, got {value!r}")
    if "\0" in value:
        raise CorpusError(f"{origin}: row {row}: {language}: expected text without NUL characters")
    return value.replace("\r", " ").replace("\n", " ")
