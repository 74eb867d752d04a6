"""One code for each language: `deu_Latn` of FLORES-200, `de_DE` of mBART and `deu` of ISO 639-3 are `de`.

A language with several scripts has its most common one under the plain code; `zho_Hant` is `zh-Hant`. The file
`flores.json` lists the languages of NLLB-200 in the order of its tokens.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

# Codes of M2M100 and former codes of ISO 639-1.
_OTHER = {"ns": "nso", "nb": "no", "iw": "he", "in": "id", "ji": "yi", "zh-Hans": "zh"}
_WITH_REGION = re.compile(r"([a-z]{2,3})_[A-Z]{2}")


@cache
def flores_codes() -> Mapping[str, str]:
    """Returns the codes of the languages of FLORES-200."""
    codes: dict[str, str] = json.loads(Path(__file__).with_name("flores.json").read_bytes())
    return codes


@cache
def _known_codes() -> Mapping[str, str]:
    plain = {flores[:3]: code for flores, code in flores_codes().items() if "-" not in code}
    return {**plain, **flores_codes(), **_OTHER}


def language_code(name: str) -> str:
    """Returns the code of a language; a name that is not known stays as it is."""
    known = _known_codes().get(name)
    if known is not None:
        return known
    match = _WITH_REGION.fullmatch(name)
    return match[1] if match else name
