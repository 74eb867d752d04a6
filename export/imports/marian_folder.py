"""Which files of a folder are a model in Marian's own format. Imports nothing that takes long."""

from pathlib import Path

# Weights, and vocabularies.
SUFFIXES = (".npz", ".bin", ".yml", ".spm")


def is_marian_folder(folder: Path) -> bool:
    """Returns whether a folder holds a model in Marian's own format."""
    return not (folder / "config.json").exists() and any(weight_paths(folder))


def weight_paths(folder: Path) -> list[Path]:
    """Returns the files with weights. Shortlists of Firefox Translations, as lex.50.50.ende.s2t.bin, are none."""
    found = sorted(folder.glob("*.npz")) or sorted(folder.glob("*.bin"))
    return [path for path in found if path not in shortlist_paths(folder)]


def shortlist_paths(folder: Path) -> list[Path]:
    """Returns the files with likely target tokens for each source token, the best form first."""
    return [path for pattern in ("lex.*.bin", "lex.s2t", "lex.s2t.gz") for path in sorted(folder.glob(pattern))]
