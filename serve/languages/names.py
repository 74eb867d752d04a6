"""English names of languages by ISO 639-1 code, and regional codes."""

import re

_TABLE = """
aa Afar|ab Abkhazian|af Afrikaans|am Amharic|ar Arabic|as Assamese|ay Aymara|az Azerbaijani|ba Bashkir|be Belarusian
bg Bulgarian|bi Bislama|bm Bambara|bn Bengali|bo Tibetan|br Breton|bs Bosnian|ca Catalan|ceb Cebuano|co Corsican
cs Czech|cv Chuvash|cy Welsh|da Danish|de German|dv Divehi|dz Dzongkha|ee Ewe|el Greek|en English|eo Esperanto
es Spanish|et Estonian|eu Basque|fa Persian|ff Fulah|fi Finnish|fil Filipino|fj Fijian|fo Faroese|fr French
fy Western Frisian|ga Irish|gd Scottish Gaelic|gl Galician|gn Guarani|gu Gujarati|ha Hausa|haw Hawaiian|he Hebrew
hi Hindi|hmn Hmong|hr Croatian|ht Haitian Creole|hu Hungarian|hy Armenian|id Indonesian|ig Igbo|ilo Iloko|is Icelandic
it Italian|iu Inuktitut|ja Japanese|jv Javanese|ka Georgian|kab Kabyle|kg Kongo|ki Kikuyu|kk Kazakh|kl Greenlandic
km Khmer|kn Kannada|ko Korean|ks Kashmiri|ku Kurdish|kv Komi|kw Cornish|ky Kyrgyz|la Latin|lb Luxembourgish|lg Ganda
li Limburgish|ln Lingala|lo Lao|lt Lithuanian|lv Latvian|mg Malagasy|mh Marshallese|mi Maori|mk Macedonian|ml Malayalam
mn Mongolian|mr Marathi|ms Malay|mt Maltese|my Burmese|nb Norwegian Bokmål|nd North Ndebele|ne Nepali|nl Dutch
nn Norwegian Nynorsk|no Norwegian|nso Northern Sotho|nv Navajo|ny Chichewa|oc Occitan|om Oromo|or Odia|os Ossetian
pa Punjabi|pb Portuguese (Brazil)|pl Polish|ps Pashto|pt Portuguese|qu Quechua|rm Romansh|rn Rundi|ro Romanian
ru Russian|rw Kinyarwanda|sa Sanskrit|sc Sardinian|sd Sindhi|se Northern Sami|sg Sango|si Sinhala|sk Slovak
sl Slovenian|sm Samoan|sn Shona|so Somali|sq Albanian|sr Serbian|ss Swati|st Southern Sotho|su Sundanese|sv Swedish
sw Swahili|ta Tamil|te Telugu|tg Tajik|th Thai|ti Tigrinya|tk Turkmen|tl Tagalog|tn Tswana|to Tongan|tr Turkish
ts Tsonga|tt Tatar|tw Twi|ty Tahitian|ug Uyghur|uk Ukrainian|ur Urdu|uz Uzbek|ve Venda|vi Vietnamese|wa Walloon
wo Wolof|xh Xhosa|yi Yiddish|yo Yoruba|yue Cantonese|zh Chinese|zt Chinese (traditional)|zu Zulu
"""
_NAMES = dict(entry.split(" ", 1) for line in _TABLE.strip().splitlines() for entry in line.split("|"))
_CODES = {name.lower(): code for code, name in _NAMES.items()}
# Served codes for a regional code in lower case, the best first. Argos Translate names two models by pb and zt.
_REGIONAL = {
    "pt-br": ("pb", "pt"),
    "zh-cn": ("zh",),
    "zh-hans": ("zh",),
    "zh-hant": ("zt", "zh-hant"),
    "zh-hk": ("zt", "zh-hant"),
    "zh-sg": ("zh",),
    "zh-tw": ("zt", "zh-hant"),
}
# Language, script and region.
_TAG = re.compile(r"([a-z]{2,3})((?:[-_][a-z]{4})?)((?:[-_](?:[a-z]{2}|[0-9]{3}))?)", re.IGNORECASE | re.ASCII)


def language_name(code: str) -> str:
    """Returns the English name of a language; for an unknown one, its code."""
    return _NAMES.get(code, code)


def language_tag(name: str) -> str:
    """Returns how a file names a language: `de` for `DE` and `German`, `de-AT` for `de-at`; another text stays."""
    text = name.strip()
    if text.lower() in _CODES:
        return _CODES[text.lower()]
    match = _TAG.fullmatch(text)
    return text if match is None else f"{match[1].lower()}{match[2].title()}{match[3].upper()}"


def served_codes(name: str) -> tuple[str, ...]:
    """Returns the lower-case codes that a code in any case and region, or an English name, may mean, the best first."""
    lower = name.strip().lower()
    if lower in _CODES:
        return (_CODES[lower],)
    lower = lower.replace("_", "-")
    return _REGIONAL.get(lower) or tuple(dict.fromkeys((lower, lower.partition("-")[0])))
