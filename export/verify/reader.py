"""How a bundle reads texts: what its tokenizer makes of them, between the tokens that its manifest asks for."""

from serve.bundle.bundle import Bundle
from serve.bundle.tokenizer import load_tokenizer


class Reader:
    """Turns texts into source ids."""

    def __init__(self, bundle: Bundle) -> None:
        """Loads the tokenizer.

        Raises:
            TokenizerError: if its files are not what the manifest says that they are.
        """
        manifest = bundle.manifest
        self._tokenizer = load_tokenizer(bundle)
        self._prefixes = {(each.source, each.target): each.source_prefix for each in manifest.directions}
        self._suffix = manifest.source_suffix

    def source_ids(self, languages: tuple[str, str], text: str) -> tuple[int, ...]:
        """Returns what the model reads of a text, given its language and that of the translation."""
        return (*self._prefixes[languages], *self._tokenizer.encode(text), *self._suffix)
