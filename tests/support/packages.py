"""Small packages in the forms of registries, for tests of sources of text."""

import io
import tarfile
import zipfile
from collections.abc import Mapping

Files = Mapping[str, bytes]


def tar_of(files: Files, mode: str = "w:gz") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def zip_of(files: Mapping[str, bytes | str]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def deb_of(files: Files) -> bytes:
    """Returns a Debian package: an ar archive of a version, an empty control archive and the data."""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar_of({}, "w:xz"),
        "data.tar.xz": tar_of({f"./{name}": content for name, content in files.items()}, "w:xz"),
    }
    content = b"!<arch>\n"
    for name, member in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(member):<10}`\n".encode() + member
        content += b"\n" * (len(member) % 2)
    return content


# A book without its page.
EBOOK = {
    "META-INF/container.xml": '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>',
    "book.opf": '<package xmlns:dc="dc"><metadata><dc:title>A title</dc:title><dc:language>en</dc:language></metadata>'
    '<manifest><item href="page.xhtml" media-type="application/xhtml+xml"/></manifest></package>',
}
