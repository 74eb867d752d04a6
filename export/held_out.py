"""What commands share that measure a bundle on held-out text and write what they find into its manifest."""

from pathlib import Path
from typing import Literal, Unpack

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg

from dragoman.model.data.corpus import Corpus, Specifications
from dragoman.model.run import write_whole
from dragoman.serve.bundle.bundle import MANIFEST_FILE, manifest_bytes
from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.local.options import SearchOptions
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.translation.response import Translation

MIN_PAIRS = 100


class HeldOutCommand(BaseSettings):
    """A command that changes the manifest of a bundle by sentence pairs that its model has not learned."""

    bundle: CliPositionalArg[Path] = Field(description="bundle whose manifest is changed")
    data: Specifications = Field(
        min_length=1, description="sentence pairs: multi30k:en-de, files:a.en,a.de, tsv:FILE or hf:NAME:en-de"
    )
    split: Literal["train", "validation", "test"] = Field(
        "validation", description="part of the data set, if it has parts"
    )
    multi30k_folder: Path | None = Field(None, description="folder of Multi30k; if omitted, $DRAGOMAN_MULTI30K")

    def write(self, manifest: Manifest) -> None:
        """Writes the changed manifest."""
        write_whole(self.bundle / MANIFEST_FILE, manifest_bytes(manifest))


async def translate_corpus(
    translator: LocalTranslator, corpus: Corpus, **options: Unpack[SearchOptions]
) -> list[Translation]:
    """Returns the translations of the sources, each as one sentence."""
    return await translator.translate(
        corpus.sources,
        source_language=corpus.source_language,
        target_language=corpus.target_language,
        split_sentences=False,
        **options,
    )
