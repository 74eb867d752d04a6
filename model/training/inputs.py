"""Hashes of what a run starts with: its pairs and its initial model. A resumed run must have the same inputs."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Self

import yaml

from dragoman.model.config import Section, read_yaml
from dragoman.model.data.cleaning import TrainingData
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import RunError
from dragoman.model.run import TrainedModel


class Inputs(Section):
    """SHA-256 of the cleaned training pairs, of the validation pairs, and of initial model and base pairs if any."""

    data: str
    validation: str
    initial: str | None = None
    base_validation: str | None = None

    @classmethod
    def of(cls, data: TrainingData, initial: TrainedModel | None = None, base: Sequence[Corpus] = ()) -> Self:
        """Returns the hashes of data, initial model and pairs of the base domain."""
        return cls(
            data=_sha256(_pairs([part.corpus for part in data.training])),
            validation=_sha256(_pairs(data.validation)),
            initial=None if initial is None else _sha256(_parameters(initial)),
            base_validation=_sha256(_pairs(base)) if base else None,
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the inputs of a run; raises FileNotFoundError if there is no file, RunError if it has other content."""
        try:
            return cls.model_validate(read_yaml(path))
        except ValueError as error:
            raise RunError(f"{path}: damaged, expected the hashes of a run's inputs") from error

    def to_yaml(self) -> str:
        """Returns YAML text for `load`."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)

    def differing(self, other: "Inputs") -> list[str]:
        """Returns the options of `dragoman train` whose content differs."""
        fields = type(self).model_fields
        return [field.replace("_", "-") for field in fields if getattr(self, field) != getattr(other, field)]


def _pairs(corpora: Sequence[Corpus]) -> Iterator[bytes]:
    for corpus in corpora:
        yield f"{corpus.direction} {len(corpus)}".encode()
        yield from (line.encode() for line in chain(corpus.sources, corpus.targets))
        yield from (str(sorted(links)).encode() for links in corpus.links)


def _parameters(initial: TrainedModel) -> Iterator[bytes]:
    yield initial.tokenizer.model
    for name, parameter in initial.model.state_dict().items():
        yield name.encode()
        yield parameter.numpy().tobytes()


def _sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
        digest.update(b"\n")
    return digest.hexdigest()
