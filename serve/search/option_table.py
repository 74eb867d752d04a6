"""The table of the search options that clients set: names, types, defaults and limits. The YAML file describes them.

All else derives from a row:

- the fields of REST, of the command line and of load scenarios (`dragoman.serve.translation.fields.SearchFields`)
- the options of the first of two translations through a third language (`dragoman.serve.translation.pivot`)
- the numbers of the native record (`dragoman.serve.engine.native.records`); the limits that C++ checks
- the C++ header of this record, the message `SearchOptions` of gRPC, and the table of docs/api.md: `make tables`
  writes them

The search reads `dragoman.serve.search.options.SearchOptions`, whose fields have the names and defaults of the table.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field, FiniteFloat

from dragoman.serve.search.options import MAX_SUPPRESSED_IDS
from dragoman.tables import described

AlignmentUnit = Literal["words", "tokens"]
NativeType = Literal["double", "float", "int32_t", "int64_t", "uint32_t", "uint64_t"]


@dataclass(frozen=True, slots=True)
class Option:
    """What a row has in addition to name, type, default, limits and description.

    Attributes:
        number: of the field in protobuf.
        native: C++ type in the record of a sequence; None: the native search needs other values or none.
        last_hop: whether the option applies only to the last of two translations through a third language.
    """

    number: int
    native: NativeType | None = None
    last_hop: bool = False


# Numbers of fields that former versions had. They must not come back with another meaning.
RETIRED_NUMBERS = (19,)

_Ratio = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


@described(__file__)
class OptionTable(BaseModel):
    """One row per option, in the order of errors and of --help. Lengths count target tokens without the end token."""

    temperature: Annotated[FiniteFloat, Option(6, "double")] = Field(0.0, ge=0, le=100)
    beam_size: Annotated[int, Option(1, "int32_t")] = Field(1, ge=1, le=1000)
    patience: Annotated[FiniteFloat, Option(2, "double")] = Field(1.0, gt=0, le=10)
    hypotheses: Annotated[int, Option(3, "int32_t", last_hop=True)] = Field(1, ge=1, le=1000)
    length_penalty: Annotated[FiniteFloat, Option(4, "double")] = Field(1.0, ge=0, le=10)
    coverage_penalty: Annotated[FiniteFloat, Option(5, "double")] = Field(0.0, ge=0, le=10)
    top_k: Annotated[int, Option(7, "int64_t")] = Field(0, ge=0, le=1_000_000)
    top_p: Annotated[FiniteFloat, Option(8, "double")] = Field(1.0, gt=0, le=1)
    seed: Annotated[int | None, Option(9, "uint64_t")] = Field(None, ge=0, lt=1 << 64)
    max_target_tokens: Annotated[int | None, Option(11, "int32_t", last_hop=True)] = Field(None, ge=1, lt=1 << 32)
    min_target_tokens: Annotated[int, Option(10, "int32_t", last_hop=True)] = Field(0, ge=0, lt=1 << 32)
    max_target_ratio: Annotated[_Ratio | None, Option(13, last_hop=True)] = None
    min_target_ratio: Annotated[FiniteFloat, Option(12, last_hop=True)] = Field(0.0, ge=0, le=100)
    repetition_penalty: Annotated[FiniteFloat, Option(14, "float")] = Field(1.0, ge=0.1, le=10)
    no_repeat_ngram_tokens: Annotated[int, Option(15, "int32_t")] = Field(0, ge=0, le=1000)
    # JSON has lists and no tuples.
    suppressed_tokens: Annotated[tuple[str, ...], Option(16, last_hop=True)] = Field(
        (),
        strict=False,
        description=f"Target pieces that are never chosen, at most {MAX_SUPPRESSED_IDS}. U+2581 starts a word.",
    )
    suppress_unknown: Annotated[bool, Option(17)] = False
    token_scores: Annotated[bool, Option(18, last_hop=True)] = False
    alignments: Annotated[AlignmentUnit | None, Option(20, "uint32_t")] = None
    shortlist: Annotated[bool | None, Option(21)] = None


ROWS = {
    name: next(item for item in field.metadata if isinstance(item, Option))
    for name, field in OptionTable.model_fields.items()
}
