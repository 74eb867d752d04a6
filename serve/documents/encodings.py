"""Encodings by their names in files, as browsers read them."""

import webencodings


def encoding_of(label: str) -> str | None:
    """Returns the name of an encoding in Python; None: UTF-8, UTF-16 or an unknown one.

    All of them have the ASCII characters of UTF-8.
    """
    # Browsers ignore `latin-1`, but editors write it.
    encoding = webencodings.lookup(label.lower().replace("latin-", "latin"))
    if encoding is None or encoding.name.startswith("utf-") or encoding.name in ("replacement", "x-user-defined"):
        return None
    return str(encoding.codec_info.name)
