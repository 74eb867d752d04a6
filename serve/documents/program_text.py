"""Which values of programs are no text for people: addresses, names, dates, formats, sizes, placeholders."""

import re

from dragoman.serve.documents.document import is_translatable, without
from dragoman.serve.protect.placeholders.patterns import Finder

_PLACEHOLDERS = Finder(("url", "email", "mustache", "interpolation", "brace", "printf"))
_FIELD = r"(?:y{2,4}|M{1,4}|d{1,2}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,3}|E{1,4}|a)"
# Every repetition is possessive, or ends where the next one begins.
_CODE = re.compile(
    # `mailto:anna`, `#ff8800`, `:symbol`, `@mixin`, `$name`, `/usr/bin`, `./a`
    r"(?:mailto|tel|data|javascript):\S++|[#:@$/][\w(]\S*+|\.{1,2}/\S*+"
    # `user_name`, `MAX_SIZE`, `userName`, `menu.open`, `btn-primary--wide`; not `E_xit`, whose mark is that of a key
    r"|[a-z0-9]++(?:_[a-z0-9]++)++|[A-Z0-9]++(?:_[A-Z0-9]++)++|[a-z]++(?:[A-Z][a-z0-9]*+)++"
    r"|[a-z][\w-]*+(?:\.[a-z][\w-]*+)++|[a-z0-9]++(?:-[a-z0-9]++)*+(?:--|__)[a-z0-9-]++"
    # `image/png`
    r"|(?:application|audio|font|image|multipart|text|video)/[\w.+-]++"
    # Identifiers in hexadecimal digits, `2024-01-01T00:00:00Z`, `v1.2.3-beta`, `10px`
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|\d{4}-\d\d-\d\d\S*+|v?\d++(?:\.\d++)++[\w.+-]*+"
    r"|\d++(?:\.\d++)?+(?:px|em|rem|vh|vw|pt|ms)"
    # `%Y-%m-%d`, `yyyy-MM-dd HH:mm`
    rf"|(?:[^\w%]*+%[-^_0]?[A-Za-z])++[^\w%]*+|{_FIELD}(?:[-/.:, ]++{_FIELD})++",
    re.ASCII,
)


def is_code(value: str) -> bool:
    """Returns whether a value is read by programs alone."""
    return _CODE.fullmatch(value.strip()) is not None or not is_translatable(without(_PLACEHOLDERS, value))
