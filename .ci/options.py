"""Writes what derives from the table of search options but is not Python: `make tables`.

These are the C++ header of a submitted record, the message SearchOptions of protos/translation.proto and the table of
docs/api.md. `files` yields their texts.
"""

import math
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from dragoman.model.provenance import fill
from dragoman.serve.engine.native.records import SUBMISSION_RECORD, Layout
from dragoman.serve.search.option_table import RETIRED_NUMBERS, ROWS, OptionTable
from dragoman.serve.search.options import SearchOptions

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "serve/native/src/loop/submission_record.hpp"
CONTRACT = ROOT / "protos/translation.proto"
REFERENCE = ROOT / "docs/api.md"
FIELDS = OptionTable.model_fields
SCALARS = {float: "double", int: "uint32", bool: "bool", str: "string"}
COMMENT_COLUMNS = 118
COMMENT = "  // "
NEVER = "std::numeric_limits<double>::infinity()"
# Defaults of a submission other than 0.
DEFAULTS = {"deadline_seconds": NEVER, "start_by_seconds": NEVER}


def files() -> Iterator[tuple[Path, str]]:
    """Yields each file and the text that it should have."""
    yield HEADER, header()
    message = "\n".join(("message SearchOptions {", *message_fields(), "}"))
    contract = CONTRACT.read_text(encoding="utf-8")
    yield CONTRACT, re.sub(r"message SearchOptions \{.*?\n\}", lambda _: message, contract, flags=re.DOTALL)
    yield REFERENCE, fill(REFERENCE.read_text(encoding="utf-8"), "options", "\n".join(reference()))


def bounds(field: FieldInfo) -> tuple[float, float, bool]:
    """Returns lower bound, upper bound, and whether the lower one is excluded; infinite without a limit."""
    inner = [item for part in get_args(field.annotation) for item in getattr(part, "__metadata__", ())]
    limits: dict[str, Any] = {}
    for item in (*field.metadata, *(limit for other in inner for limit in other.metadata)):
        limits |= {name: getattr(item, name) for name in ("ge", "gt", "le", "lt") if hasattr(item, name)}
    low = limits.get("ge", limits.get("gt", -math.inf))
    high = limits["lt"] - 1 if "lt" in limits else limits.get("le", math.inf)
    return low, high, "gt" in limits


def spelled(value: Any) -> str:
    """Returns a number or default for readers."""
    if isinstance(value, bool):
        return f"`{value}`".lower()
    if isinstance(value, int) and value & (value + 1) == 0 and value > 1 << 31:
        return f"2^{value.bit_length()} - 1"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else "none"


def kind_of(field: FieldInfo) -> Any:
    """Returns the type of an option without None."""
    kind: Any = field.annotation
    others = [argument for argument in get_args(kind) if argument is not NoneType]
    if get_origin(kind) not in (tuple, Literal) and others:
        kind = others[0]
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


def range_of(field: FieldInfo) -> str:
    """Returns the values of an option for readers."""
    kind = kind_of(field)
    low, high, above = bounds(field)
    if high < math.inf:
        return f"{'above ' if above else ''}{spelled(low)}{',' if above else ''} to {spelled(high)}"
    if get_origin(kind) is Literal:
        return " or ".join(f"`{argument}`" for argument in get_args(kind))
    return "`true`, `false`" if kind is bool else ""


def reference() -> Iterator[str]:
    """Yields the lines of the table of docs/api.md."""
    yield "| option | values | default | effect |"
    yield "| --- | --- | --- | --- |"
    for name, field in FIELDS.items():
        yield f"| `{name}` | {range_of(field)} | {spelled(field.default)} | {field.description} |"


def message_fields() -> Iterator[str]:
    """Yields the lines of the fields of the protobuf message, in the order of their numbers."""
    for number in sorted([*(option.number for option in ROWS.values()), *RETIRED_NUMBERS]):
        if number in RETIRED_NUMBERS:
            yield f"  reserved {number};"
            continue
        name = next(name for name, option in ROWS.items() if option.number == number)
        field = FIELDS[name]
        yield from textwrap.wrap(
            about(field), COMMENT_COLUMNS, initial_indent=COMMENT, subsequent_indent=COMMENT, break_on_hyphens=False
        )
        yield f"  {proto_type(field)} {name} = {number};"


def about(field: FieldInfo) -> str:
    """Returns the comment on a field of the message."""
    parts = [str(field.description)]
    if bounds(field)[1] < math.inf:
        parts.append(f"Range: {range_of(field)}.")
    if field.default not in (None, ()):
        parts.append(f"Default {spelled(field.default)}.")
    return " ".join(parts).replace("`", '"')


def proto_type(field: FieldInfo) -> str:
    """Returns label and type of a field in protobuf."""
    kind = kind_of(field)
    if get_origin(kind) is tuple:
        return f"repeated {SCALARS[get_args(kind)[0]]}"
    if kind is int and bounds(field)[1] >= 1 << 32:
        return "optional uint64"
    return f"optional {SCALARS[type(get_args(kind)[0]) if get_origin(kind) is Literal else kind]}"


def header() -> str:
    """Returns the C++ header of the record in which Python submits a sequence."""
    structs = "\n\n".join(struct(name, layout) for name, layout in SUBMISSION_RECORD.items())
    checks = "\n".join(limit_checks())
    return f"""\
// The record in which Python submits a sequence. `make tables` writes this file: change serve/search/option_table.py
// or serve/engine/native/records.py instead. serve/search/options.py documents the numbers of the search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace dragoman {{

{structs}

// Calls check(name, value, least, most) for each number that has limits.
template <class Check>
void check_limits(const SearchNumbers& numbers, Check check) {{
{checks}
}}

}}  // namespace dragoman
"""


def struct(name: str, layout: Layout) -> str:
    """Returns a C++ struct, and the checks that its layout is that of Python."""
    lines = [f"struct alignas(8) {name} {{"]
    default = search_default if name == "SearchNumbers" else lambda field: DEFAULTS.get(field, "0")
    lines += [f"  {kind} {field} = {default(field)};" for field, kind in layout.types.items()]
    lines.append("};")
    lines += [f"static_assert(offsetof({name}, {field}) == {offset});" for field, offset in layout.offsets.items()]
    lines.append(f"static_assert(sizeof({name}) == {layout.size});")
    return "\n".join(lines)


def search_default(name: str) -> str:
    """Returns the default of a number of the search, or else the least that is allowed."""
    return f"{SearchOptions._field_defaults.get(name, bounds(FIELDS[name])[0]):g}"


def limit_checks() -> Iterator[str]:
    """Yields the calls for the numbers with limits. Excluded limits of the interfaces are allowed here."""
    for name in SUBMISSION_RECORD["SearchNumbers"].types:
        low, high, _ = bounds(FIELDS[name])
        if high < math.inf and ROWS[name].native != "uint64_t":
            yield f'  check("{name}", static_cast<double>(numbers.{name}), {low:.17g}, {high:.17g});'


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
