"""Random protobuf messages for Hypothesis: fields are set or not, with values of their whole range."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

# Words that reach more code than random text.
WORDS = (
    *("en", "de", "fake", "text_input", "text_output", "score", "BYTES", "beam_size", "timeout", "stream"),
    *("ab ba", " "),
)
MAX_DEPTH = 4

_SIGNED_32 = st.integers(-(1 << 31), (1 << 31) - 1)
_SIGNED_64 = st.one_of(st.integers(-2, 4), st.integers(-(1 << 63), (1 << 63) - 1))
_UNSIGNED_32 = st.one_of(st.integers(0, 4), st.integers(0, (1 << 32) - 1))
_UNSIGNED_64 = st.one_of(st.integers(0, 4), st.integers(0, (1 << 64) - 1))
_TEXT = st.one_of(st.sampled_from(WORDS), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.one_of(st.binary(max_size=20), st.sampled_from([b"\5\0\0\0ab ba", b"ab"])),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.TYPE_INT32: _SIGNED_32,
    FieldDescriptor.TYPE_INT64: _SIGNED_64,
    FieldDescriptor.TYPE_STRING: _TEXT,
    FieldDescriptor.TYPE_UINT32: _UNSIGNED_32,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED_64,
}


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    return _contents(kind.DESCRIPTOR, MAX_DEPTH).map(lambda content: kind(**content))


def messages_like(good: Message) -> st.SearchStrategy[Message]:
    """Returns messages that differ from a valid one in one field."""
    kind = type(good)

    def replaced(name: str, content: dict[str, Any]) -> Message:
        message = kind()
        message.CopyFrom(good)
        message.ClearField(name)
        message.MergeFrom(kind(**content))
        return message

    contents = _contents(kind.DESCRIPTOR, MAX_DEPTH).filter(bool)
    single = contents.flatmap(lambda content: st.sampled_from(sorted(content)).map(lambda name: {name: content[name]}))
    return single.map(lambda content: replaced(next(iter(content)), content))


def _contents(descriptor: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Returns the content of messages: a value for each of some fields, one of each oneof."""
    alone = {field.name: _values(field, depth) for field in descriptor.fields if field.containing_oneof is None}
    strategies = [st.fixed_dictionaries({}, optional=alone)]
    for oneof in descriptor.oneofs:
        choices = [st.fixed_dictionaries({field.name: _values(field, depth)}) for field in oneof.fields]
        strategies.append(st.one_of(st.just({}), *choices))
    return st.tuples(*strategies).map(lambda parts: {name: value for part in parts for name, value in part.items()})


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        value = _VALUES.get(field.type, st.just(0))
        return st.lists(value, max_size=3) if field.is_repeated else value
    assert field.message_type is not None
    if field.message_type.GetOptions().map_entry:
        fields = field.message_type.fields_by_name
        return st.dictionaries(_values(fields["key"], depth), _values(fields["value"], depth), max_size=3)
    if not depth:
        return st.just([]) if field.is_repeated else st.just({})
    content = _contents(field.message_type, depth - 1)
    return st.lists(content, max_size=2) if field.is_repeated else content
