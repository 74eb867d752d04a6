"""What all records of a bundle have in common: nothing changes them, and nothing unknown may stand in them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

# A name without a folder: a manifest must not lead out of its bundle.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]


class Record(BaseModel):
    """A part of `manifest.json` or `golden.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
