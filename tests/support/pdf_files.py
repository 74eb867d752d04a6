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
        content += b"%d 0 obj\n%b\nendobj\n" % (number, item if isinstance(item, bytes) else item.encode("latin-1"))
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<</Size {size}/Root 1 0 R{trailer}>>\n"
    return content + f"{end}startxref\n{len(content)}\n%%EOF\n".encode("latin-1")


def stream_of(content: bytes, entries: str = "") -> bytes:
    """Returns a compressed stream with more entries of its dictionary."""
    packed = zlib.compress(content, 9)
    return b"<</Filter/FlateDecode/Length %d%b>>stream\n%b\nendstream" % (len(packed), entries.encode(), packed)


def pages_of(contents: Sequence[bytes], others: Sequence[bytes | str] = (), resources: str = "") -> bytes:
    """Returns a file with a page per content; `others` are objects after them, for the resources of all pages."""
    first = 4 + 2 * len(contents)
    fonts = " ".join(f"/{name}<</Type/Font/Subtype/Type1/BaseFont/{base}>>" for name, base in _FONTS.items())
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    objects: list[bytes | str] = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(contents)}/Kids[{kids}]>>",
        f"<</Font<<{fonts}>>{resources.format(*range(first, first + len(others)))}>>",
    ]
    for number, content in enumerate(contents):
        page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources 3 0 R/Contents {} 0 R>>"
        objects += [page.format(5 + 2 * number), stream_of(content)]
    return pdf_of([*objects, *others])


def page_of(texts: Sequence[Text], font: str = "F") -> bytes:
    """Returns the operators of texts, each with its left end, its baseline and its size in points."""
    escaped = ((*place, text.translate({40: r"\(", 41: r"\)", 92: r"\\"})) for *place, text in texts)
    shown = (f"/{font} {size} Tf 1 0 0 1 {left} {baseline} Tm ({text}) Tj" for left, baseline, size, text in escaped)
    return f"BT {' '.join(shown)} ET\n".encode("cp1252")
