"""Reads messages of Fluent, .ftl: values and attributes, with a text for each variant of a selector.

References to terms, such as names of products, become their texts where the file has the term or it is a known brand;
variables stay as {$name}.
"""

from collections.abc import Iterator

from fluent.syntax import FluentParser, ast

from dragoman.model.data.sources.readers.messages import Messages

# Attributes that are not text for people.
_TECHNICAL = ("style", "accesskey", "key", "commandkey")
_PARSER = FluentParser(with_spans=False)
# A product's name stands in another file of its package.
_BRANDS = {
    "brand-short-name": "Firefox",
    "brand-shorter-name": "Firefox",
    "brand-full-name": "Mozilla Firefox",
    "brand-product-name": "Firefox",
    "vendor-short-name": "Mozilla",
}


def read_ftl(content: bytes) -> Messages:
    """Returns the texts of a resource; the key of a variant ends with its names."""
    entries = _PARSER.parse(content.decode()).body
    terms = {entry.id.name: entry.value for entry in entries if isinstance(entry, ast.Term)}
    messages: Messages = {}
    for entry in entries:
        if not isinstance(entry, ast.Message):
            continue
        patterns = [(entry.id.name, entry.value)]
        patterns += [
            (f"{entry.id.name}.{attribute.id.name}", attribute.value)
            for attribute in entry.attributes
            if not attribute.id.name.endswith(_TECHNICAL)
        ]
        for key, pattern in patterns:
            if pattern is not None and not key.endswith(_TECHNICAL):
                messages.update((f"{key}{names}", text) for names, text in _texts(pattern, terms))
    return messages


def _texts(pattern: ast.Pattern, terms: dict[str, ast.Pattern]) -> Iterator[tuple[str, str]]:
    """Yields the names of variants and the text of each combination that begins with the same variants."""
    texts = [("", "")]
    for element in pattern.elements:
        parts = [("", element.value)] if isinstance(element, ast.TextElement) else _expression(element, terms)
        parts = list(parts)
        texts = [(names + more, text + part) for names, text in texts for more, part in parts]
    yield from texts


def _expression(element: ast.Placeable, terms: dict[str, ast.Pattern]) -> Iterator[tuple[str, str]]:
    expression = element.expression
    if isinstance(expression, ast.SelectExpression):
        for variant in expression.variants:
            name = variant.key.name if isinstance(variant.key, ast.Identifier) else variant.key.value
            yield from ((f"[{name}]{names}", text) for names, text in _texts(variant.value, terms))
    elif isinstance(expression, ast.StringLiteral | ast.NumberLiteral):
        yield "", expression.parse()["value"] if isinstance(expression, ast.StringLiteral) else expression.value
    elif isinstance(expression, ast.TermReference) and not expression.arguments and expression.id.name in _BRANDS:
        yield "", _BRANDS[expression.id.name]
    elif isinstance(expression, ast.TermReference) and expression.id.name in terms:
        yield next(_texts(terms[expression.id.name], {}))
    else:
        yield "", f"{{{_spelled(expression)}}}"


def _spelled(expression: object) -> str:
    """Returns a reference as a placeholder is spelled: of a variable with a dollar sign, of a message without."""
    if isinstance(expression, ast.VariableReference):
        return f"${expression.id.name}"
    if isinstance(expression, ast.FunctionReference):
        first = expression.arguments.positional
        return _spelled(first[0]) if first else expression.id.name
    return expression.id.name if isinstance(expression, ast.MessageReference | ast.TermReference) else "value"
