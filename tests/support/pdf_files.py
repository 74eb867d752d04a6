"""Small PDF files, made of the operators of their pages."""

import zlib
from collections.abc import Sequence

# Fonts by their names in operators: of a proportional and of a fixed width.
_FONTS = {"F": "Times-Roman", "C": "Courier"}
Text = tuple[float, float, float, str]


def pdf_of(objects: Sequence[bytes | str], trailer: str = "") -> bytes:
    """Returns a file of numbered objects, of which the first one is the catalog."""
    content, offsets = b"%PDF-1.7\n", list[int]()
    for number, item in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%b\nendobj\n" % (number, item if isinstance(item, bytes) else item.encode())
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<</Size {size}/Root 1 0 R{trailer}>>\n"
    return content + f"{end}startxref\n{len(content)}\n%%EOF\n".encode()


def _stream(content: bytes, entries: str = "") -> bytes:
    packed = zlib.compress(content, 9)
    return b"<</Filter/FlateDecode/Length %d%b>>stream\n%b\nendstream" % (len(packed), entries.encode(), packed)


def form_of(content: bytes | str) -> bytes:
    """Returns a form, which pages and forms draw by its number, as in `/X0 Do`."""
    operators = content if isinstance(content, bytes) else content.encode()
    return _stream(operators, "/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources 3 0 R")


def pages_of(
    contents: Sequence[bytes], forms: Sequence[bytes] = (), *, resources: str = "", trailer: str = "", count: int = 1
) -> bytes:
    """Returns a file with a page per content, `count` times."""
    first = 4 + 2 * len(contents)
    fonts = " ".join(f"/{name}<</Type/Font/Subtype/Type1/BaseFont/{base}>>" for name, base in _FONTS.items())
    named = " ".join(f"/X{number} {first + number} 0 R" for number in range(len(forms)))
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    objects: list[bytes | str] = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {count * len(contents)}/Kids[{' '.join([kids] * count)}]>>",
        f"<<{resources or f'/Font<<{fonts}>>'}/XObject<<{named}>>>>",
    ]
    for number, content in enumerate(contents):
        page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources 3 0 R/Contents {} 0 R>>"
        objects += [page.format(5 + 2 * number), _stream(content)]
    return pdf_of([*objects, *forms], trailer)


def page_of(texts: Sequence[Text], font: str = "F") -> bytes:
    """Returns the operators of texts, each with its left end, its baseline and its size in points."""
    escaped = ((*place, text.translate({40: r"\(", 41: r"\)", 92: r"\\"})) for *place, text in texts)
    shown = (f"/{font} {size} Tf 1 0 0 1 {left} {baseline} Tm ({text}) Tj" for left, baseline, size, text in escaped)
    return f"BT {' '.join(shown)} ET\n".encode("latin-1")
