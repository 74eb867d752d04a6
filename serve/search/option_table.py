"""The table of the search options that clients set: names, types, defaults, limits and descriptions.

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


class OptionTable(BaseModel):
    """One row per option, in the order of errors and of --help. Lengths count target tokens without the end token."""

    temperature: Annotated[FiniteFloat, Option(6, "double")] = Field(
        0.0, ge=0, le=100, description="Sampling temperature: softmax(logits / temperature). 0: no sampling."
    )
    beam_size: Annotated[int, Option(1, "int32_t")] = Field(
        1,
        ge=1,
        le=1000,
        description="Beam size K; each hypothesis takes a slot. 1: greedy. A model may set the default.",
    )
    patience: Annotated[FiniteFloat, Option(2, "double")] = Field(
        1.0, gt=0, le=10, description="Stop at round(patience * K) finished hypotheses, at least 1. Requires K > 1."
    )
    hypotheses: Annotated[int, Option(3, "int32_t", last_hop=True)] = Field(
        1, ge=1, le=1000, description="Translations per text, best first. Beam search: at most K and patience * K."
    )
    length_penalty: Annotated[FiniteFloat, Option(4, "double")] = Field(
        1.0, ge=0, le=10, description="alpha: score / length^alpha ranks hypotheses. 0: the sum of log-probabilities."
    )
    coverage_penalty: Annotated[FiniteFloat, Option(5, "double")] = Field(
        0.0, ge=0, le=10, description="Weight of sum_i log(min(sum_j a_ij, 1)) in the score; needs server alignments."
    )
    top_k: Annotated[int, Option(7, "int64_t")] = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Sample from this many most probable tokens; 0: all. Requires temperature > 0.",
    )
    top_p: Annotated[FiniteFloat, Option(8, "double")] = Field(
        1.0, gt=0, le=1, description="Sample from the fewest tokens with this probability. Requires temperature > 0."
    )
    seed: Annotated[int | None, Option(9, "uint64_t")] = Field(
        None, ge=0, lt=1 << 64, description="Seed of sampling; random and returned if unset. Requires temperature > 0."
    )
    max_target_tokens: Annotated[int | None, Option(11, "int32_t", last_hop=True)] = Field(
        None, ge=1, lt=1 << 32, description="Maximum length of a translation, at most and by default the model's limit."
    )
    min_target_tokens: Annotated[int, Option(10, "int32_t", last_hop=True)] = Field(
        0, ge=0, lt=1 << 32, description="Minimum length of a translation, before the end token."
    )
    max_target_ratio: Annotated[_Ratio | None, Option(13, last_hop=True)] = Field(
        None, description="Maximum length per source token, rounded down. The smaller maximum applies."
    )
    min_target_ratio: Annotated[FiniteFloat, Option(12, last_hop=True)] = Field(
        0.0, ge=0, le=100, description="Minimum length per source token, rounded up. The larger minimum applies."
    )
    repetition_penalty: Annotated[FiniteFloat, Option(14, "float")] = Field(
        1.0, ge=0.1, le=10, description="Divisor of positive, factor of negative logits of repeated tokens. 1: off."
    )
    no_repeat_ngram_tokens: Annotated[int, Option(15, "int32_t")] = Field(
        0, ge=0, le=1000, description="Length of the n-grams that do not occur twice in a translation. 0: off."
    )
    # JSON has lists and no tuples.
    suppressed_tokens: Annotated[tuple[str, ...], Option(16, last_hop=True)] = Field(
        (),
        strict=False,
        description=f"Target pieces that are never chosen, at most {MAX_SUPPRESSED_IDS}. U+2581 starts a word.",
    )
    suppress_unknown: Annotated[bool, Option(17)] = Field(False, description="Never choose the unknown token.")
    token_scores: Annotated[bool, Option(18, last_hop=True)] = Field(
        False, description="Return the natural log-probability of every target token."
    )
    alignments: Annotated[AlignmentUnit | None, Option(20, "uint32_t")] = Field(
        None, description="Return alignments of `words` or `tokens`. Requires a server with alignments."
    )
    shortlist: Annotated[bool | None, Option(21)] = Field(
        None, description="Choose from the likely tokens of each source alone; unset: as the server sets it."
    )


ROWS = {
    name: next(item for item in field.metadata if isinstance(item, Option))
    for name, field in OptionTable.model_fields.items()
}
