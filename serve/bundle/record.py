"""What the records of `manifest.json` and `golden.json` have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

# No folder part: a manifest must not refer to files outside its bundle.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=128)]


class Record(BaseModel):
    """A part of `manifest.json` or `golden.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
