"""The tokenizer of HTML as a state machine, character by character (WHATWG HTML, section 13.2.5), slow and obvious.

Foreign elements are left out. Token: kind, first character, character after the last one, name of a tag.
"""

from collections.abc import Callable

Found = tuple[str, int, int, str]

SPACES = "\t\n\f\r "
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
VOID = ["area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen"]
VOID += ["link", "meta", "param", "source", "track", "wbr"]
RAW = ["iframe", "noembed", "noframes", "noscript", "style", "xmp"]
ESCAPABLE = ["textarea", "title"]


class Machine:
    """The state of the tokenizer; each method is a state, reads one character (None: the end) and names the next."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.start = 0
        self.name = ""
        self.attribute_start = True
        self.end_tag = False
        self.raw = ""
        self.raw_kind = ""
        self.found: list[Found] = []

    def run(self) -> list[Found]:
        """Returns all tokens; adjacent characters of text are one token."""
        state: Callable[[str | None], object] = self.data
        while self.place <= len(self.text):
            character = self.text[self.place] if self.place < len(self.text) else None
            self.place += 1
            following: object = state(character)
            if character is None:
                break
            assert callable(following)
            state = following
        return self.found

    def emit(self, kind: str, end: int, name: str = "") -> None:
        """Adds a token that begins at `start`."""
        if kind in ("text", "raw") and self.found and self.found[-1][0] == kind and self.found[-1][2] == self.start:
            _, start, _, _ = self.found.pop()
            self.start = start
        if end > self.start:
            self.found.append((kind, self.start, end, name))
        self.start = end

    def again(self, state: Callable[[str | None], object], character: str | None) -> object:
        """Reads the same character in another state."""
        return state(character)

    def data(self, character: str | None) -> object:
        if character == "<":
            return self.tag_open
        if character is not None:
            self.emit("text", self.place)
        return self.data

    def tag_open(self, character: str | None) -> object:
        if character is None:
            self.emit("text", self.place - 1)
            return None
        if character == "!":
            return self.declaration
        if character == "/":
            return self.end_tag_open
        if character == "?":
            return self.again(self.bogus, character)
        if character in LETTERS:
            self.end_tag, self.name = False, ""
            return self.again(self.tag_name, character)
        self.emit("text", self.place - 1)
        return self.again(self.data, character)

    def end_tag_open(self, character: str | None) -> object:
        if character is None:
            self.emit("text", self.place - 1)
            return None
        if character in LETTERS:
            self.end_tag, self.name = True, ""
            return self.again(self.tag_name, character)
        return self.again(self.bogus, character)

    def declaration(self, character: str | None) -> object:
        if self.text.startswith("--", self.place - 1):
            self.place += 1
            return self.comment_start
        return self.again(self.bogus, character)

    def bogus(self, character: str | None) -> object:
        if character is None or character == ">":
            self.emit("other", self.place - (character is None))
            return self.data
        return self.bogus

    def comment_start(self, character: str | None) -> object:
        if character == "-":
            return self.comment_start_dash
        if character == ">":
            self.emit("other", self.place)
            return self.data
        return self.again(self.comment, character)

    def comment_start_dash(self, character: str | None) -> object:
        if character == "-":
            return self.comment_end
        if character == ">":
            self.emit("other", self.place)
            return self.data
        return self.again(self.comment, character)

    def comment(self, character: str | None) -> object:
        if character is None:
            self.emit("other", self.place - 1)
            return None
        return self.comment_end_dash if character == "-" else self.comment

    def comment_end_dash(self, character: str | None) -> object:
        return self.comment_end if character == "-" else self.again(self.comment, character)

    def comment_end(self, character: str | None) -> object:
        if character == ">":
            self.emit("other", self.place)
            return self.data
        if character == "!":
            return self.comment_end_bang
        return self.comment_end if character == "-" else self.again(self.comment, character)

    def comment_end_bang(self, character: str | None) -> object:
        if character == "-":
            return self.comment_end_dash
        if character == ">":
            self.emit("other", self.place)
            return self.data
        return self.again(self.comment, character)

    def tag_name(self, character: str | None) -> object:
        if character is None:
            self.emit("other", self.place - 1)
            return None
        if character in SPACES:
            return self.before_attribute
        if character == "/":
            return self.before_attribute
        if character == ">":
            return self.end_of_tag()
        self.name += character
        return self.tag_name

    def end_of_tag(self) -> object:
        name = "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in self.name)
        kind = "end" if self.end_tag else "empty" if name in VOID else "start"
        self.emit(kind, self.place, name)
        if kind == "start" and (name in RAW or name in ESCAPABLE or name in ("script", "plaintext")):
            self.raw, self.raw_kind = name, "text" if name in ESCAPABLE else "raw"
            return self.script if name == "script" else self.raw_text
        return self.data

    def before_attribute(self, character: str | None) -> object:
        if character is None:
            self.emit("other", self.place - 1)
            return None
        if character in SPACES or character == "/":
            return self.before_attribute
        if character == ">":
            return self.end_of_tag()
        return self.attribute_name  # the first character belongs to the name, also if it is "="

    def attribute_name(self, character: str | None) -> object:
        if character is None or character in SPACES or character in "/>":
            return self.again(self.after_attribute_name, character)
        return self.before_value if character == "=" else self.attribute_name

    def after_attribute_name(self, character: str | None) -> object:
        if character is None:
            self.emit("other", self.place - 1)
            return None
        if character in SPACES:
            return self.after_attribute_name
        if character == "=":
            return self.before_value
        return self.again(self.before_attribute, character)

    def before_value(self, character: str | None) -> object:
        if character is not None and character in SPACES:
            return self.before_value
        if character == '"':
            return self.double_quoted
        if character == "'":
            return self.single_quoted
        return self.again(self.unquoted, character)

    def double_quoted(self, character: str | None) -> object:
        return self.quoted(character, '"', self.double_quoted)

    def single_quoted(self, character: str | None) -> object:
        return self.quoted(character, "'", self.single_quoted)

    def quoted(self, character: str | None, quote: str, state: Callable[[str | None], object]) -> object:
        if character is None:
            self.emit("other", self.place - 1)
            return None
        return self.before_attribute if character == quote else state

    def unquoted(self, character: str | None) -> object:
        if character is None:
            self.emit("other", self.place - 1)
            return None
        if character in SPACES:
            return self.before_attribute
        return self.end_of_tag() if character == ">" else self.unquoted

    def ends_raw(self) -> bool:
        """Returns whether an end tag of the raw element begins at the character before `place`."""
        after = self.place - 1 + 2 + len(self.raw)
        tag = self.text[self.place - 1 : after].lower()
        return tag == f"</{self.raw}" and self.text[after : after + 1] in tuple(f"{SPACES}/>")

    def raw_text(self, character: str | None) -> object:
        if character is None:
            return None
        if self.raw != "plaintext" and self.ends_raw():
            return self.again(self.data, character)
        self.emit(self.raw_kind, self.place)
        return self.raw_text

    def script(self, character: str | None) -> object:
        if character is None:
            return None
        if self.ends_raw():
            return self.again(self.data, character)
        if self.text.startswith("<!--", self.place - 1):
            self.emit("raw", self.place + 3)
            self.place += 3
            return self.escaped_script
        self.emit("raw", self.place)
        return self.script

    def closes_comment(self) -> bool:
        """Returns whether the character before `place` is the `>` of `-->`; the dashes may be those of `<!--`."""
        return self.text[: self.place].endswith("-->")

    def starts_script(self) -> bool:
        """Returns whether a start tag of a script begins at the character before `place`."""
        after = self.place + 6
        return self.text[self.place - 1 : after].lower() == "<script" and self.text[after : after + 1] in tuple(
            f"{SPACES}/>"
        )

    def escaped_script(self, character: str | None) -> object:
        if character is None:
            return None
        if self.ends_raw():
            return self.again(self.data, character)
        starts = self.starts_script()
        self.emit("raw", self.place)
        if self.closes_comment():
            return self.script
        return self.double_escaped_script if starts else self.escaped_script

    def double_escaped_script(self, character: str | None) -> object:
        if character is None:
            return None
        ends = self.ends_raw()
        self.emit("raw", self.place)
        if self.closes_comment():
            return self.script
        return self.escaped_script if ends else self.double_escaped_script


def scan_slowly(text: str) -> list[Found]:
    """Returns the tokens of a document."""
    return Machine(text).run()
