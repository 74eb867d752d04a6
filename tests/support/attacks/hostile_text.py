"""Hostile documents of the text formats: made by repeating marks of the format up to a size."""

from random import Random

from dragoman.serve.documents.document import DocumentError
from dragoman.serve.documents.formats import parse_document
from tests.support.attacks.hostile_office import REQUEST, Attack


def _marks(text: str) -> tuple[str, ...]:
    return tuple(text.split("¦"))


# Marks of every format: digits, blanks, quotes, references, brackets, letters.
_COMMON = _marks(
    "0¦9¦ ¦\t¦\n¦\r\n¦\r¦'¦\"¦&¦&#¦&#9¦&#x¦&amp¦&amp;¦;¦<¦>¦[¦]¦(¦)¦{¦}¦*¦_¦-¦`¦"
    "~¦|¦\\¦/¦!¦=¦:¦.¦,¦%¦@¦#¦$¦^¦+¦a¦a ¦a\n¦a\n\n¦Ab. ¦http://¦h¦www.¦a@b.¦\ufeff¦"
    "\u3000¦\xa0¦\u2028¦\x0b¦\xe9"
)
_TAGS = _marks(
    "<a¦<a ¦<b>¦</b>¦<b¦</¦<!--¦-->¦<!¦<?¦?>¦<![CDATA[¦]]>¦<br>¦<br/>¦<p>¦<a b=\"¦<a b='¦"
    " b=c¦=¦<i></i>¦<i>a</i>¦<li>¦<td>¦<script>¦</script¦<style>¦</style>¦<svg>¦</svg>¦<code>¦"
    "</code>¦<pre>¦</pre>¦translate¦<b translate=no>¦<textarea>¦<math>"
)
_MARKDOWN = _marks(
    "> ¦- ¦* ¦1. ¦1) ¦  - ¦    ¦# ¦#¦```¦~~~¦```\n¦***¦**¦__¦~~¦![¦](¦[](¦[a]¦[a]: b\n¦"
    "[a]: ¦[^¦[^a]: ¦[^a]¦[a][¦|¦|a¦|-¦|-|\n¦|a|b|\n|-|-|\n¦\\\n¦  \n¦$¦$$¦$a$¦$$\n¦\\(¦\\[¦"
    ": a\n¦a\n: ¦---\n¦===\n¦*a¦a*¦_a¦a_¦<!--\n¦[ ] ¦(<"
)
_TIME = "00:00:01,000 --> 00:00:02,000"
_SUBTITLES = _marks(
    f"{_TIME}¦{_TIME}\n¦1\n{_TIME}\n¦-->¦ --> ¦00:¦:0¦,0¦.0¦<00:01.000>¦{{\\¦{{\\an8}}¦- ¦\u266a¦<i>¦"
    f"</i>¦<c.a>¦<v ¦NOTE¦[MUSIC]¦(laughs)¦{_TIME}\na\n¦{_TIME}\n ¦{_TIME}\n- a\n- b\n\n"
)
_STRINGS = _marks('a=¦a = "b";¦\\\n¦\\u00e9¦\\¦\'\'¦{0}¦/*¦*/¦//¦;¦!¦""')
_TEXT = _marks("- ¦* ¦1. ¦a) ¦\u2022 ¦- \n¦1¦1.¦(¦(a¦iv. ¦[ ] ")
# Marks by format, and what begins a document in which they count.
MARKS: dict[str, tuple[str, ...]] = {
    ".txt": (*_COMMON, *_TEXT),
    ".md": (*_COMMON, *_TAGS, *_MARKDOWN),
    ".html": (*_COMMON, *_TAGS),
    ".srt": (*_COMMON, *_TAGS, *_SUBTITLES),
    ".vtt": (*_COMMON, *_TAGS, *_SUBTITLES),
    ".properties": (*_COMMON, *_STRINGS),
    ".strings": (*_COMMON, *_STRINGS),
}
BEGINNINGS: dict[str, tuple[str, ...]] = {
    ".txt": ("", "a", "- "),
    ".md": ("", "a", "a\n", "# ", "- ", "---\n", "[a]: b\n\n", "|a|\n|-|\n|", "<p>", "a [", "a <a "),
    ".html": ("", "a", "<p>a ", "<p>a <b>b</b> ", "<a ", "<!--", "<script>", "<p translate=no>"),
    ".srt": ("", f"1\n{_TIME}\n", f"1\n{_TIME}\na", f"1\n{_TIME}", "1\n00:00:01,000 --> 00:00:02,", "1\n00:00:01,"),
    ".vtt": ("WEBVTT\n\n", f"WEBVTT\n\n{_TIME}\n", f"WEBVTT\n\n{_TIME}\na", "WEBVTT\n\n00:01.000 --> 00:02."),
    ".properties": ("", "a=b ", "# ", "\\"),
    ".strings": ("", '"a" = "b', "/*", "a = "),
}


def draw(random: Random) -> Attack:
    suffix = random.choice(tuple(MARKS))

    def marks(*counts: int) -> str:
        return "".join(random.choices(MARKS[suffix], k=random.choice(counts)))

    end = random.choice(("", "a", "\n", "\na", ">", "]"))
    beginning = random.choice(BEGINNINGS[suffix])
    return Attack(suffix[1:], beginning, marks(1, 1, 2, 2, 3), marks(0, 1), marks(0, 0, 0, 1, 2), end)


def translate(name: str, content: bytes) -> None:
    """Reads a document and writes it with other texts, unless it is refused."""
    try:
        document = parse_document(name, content, REQUEST)
    except DocumentError:
        return
    document.write([f"{segment.text}x" if segment.format == "text" else segment.text for segment in document.segments])
