"""What `dragoman bench service` has translated: sentences as text for the server, and as tokens for the bare engine.

Knows bundles and data, no server. `dragoman bench replicas` takes the texts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.systems.source_sentence import SourceSentence
from loadtest.request import Languages
from model.data.corpus import CorpusError, read_corpus
from model.tokenizer.text_tokenizer import TextTokenizer
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import BundleDirection
from serve.bundle.tokenizer import load_tokenizer
from serve.search.options import SearchOptions
from serve.translation.passage import Passage
from serve.translation.search_limits import SearchPlan


@dataclass(frozen=True, slots=True)
class ServiceSentence:
    """A sentence that the server takes for one sequence.

    Attributes:
        text: as clients send it.
        source: the tokens that the server makes of it, and the limits of its translation.
    """

    text: str
    source: SourceSentence


@dataclass(frozen=True, slots=True)
class ServiceSentences:
    """What is translated.

    Attributes:
        direction: from which language into which.
        sentences: at least one.
        tokenizer: of the bundle.
    """

    direction: BundleDirection
    sentences: Sequence[ServiceSentence]
    tokenizer: TextTokenizer

    @property
    def languages(self) -> Languages:
        """The direction as clients name it."""
        return Languages(self.direction.source, self.direction.target)

    def short(self, words: int) -> list[str]:
        """Returns the texts of those with at most so many words.

        Raises:
            CorpusError: if there are none.
        """
        texts = [each.text for each in self.sentences if len(each.text.split()) <= words]
        if not texts:
            raise CorpusError(f"words: {words}: expected more, or other data: no sentence is so short")
        return texts


def read_sentences(bundle: Bundle, data: str | None, max_target_ratio: float | None = None) -> ServiceSentences:
    """Returns the sentences of a bundle or of other data; those that a server would cut into several are left out.

    Args:
        bundle: that translates them.
        data: test data; None: the golden sentences of the bundle's first direction.
        max_target_ratio: the longest translation, times the tokens of its source; None: the model's limit.

    Raises:
        CorpusError: if the data cannot be read, or the bundle does not translate them.
        TokenizerError: if the tokenizer of the bundle is none.
    """
    direction, texts = _golden(bundle) if data is None else _test_set(bundle, data)
    tokenizer = load_tokenizer(bundle)
    # As the server limits translations.
    plan = SearchPlan(SearchOptions(max_target_tokens=bundle.manifest.max_target_tokens), max_target_ratio)
    sentences = [
        ServiceSentence(
            text, SourceSentence(source_ids, 0, plan.options_for(len(source_ids), (), "").max_target_tokens)
        )
        for text, source_ids in _sources(bundle, direction, tokenizer, texts)
    ]
    if not sentences:
        raise CorpusError(f"data: {data}: expected sentences that the model reads")
    return ServiceSentences(direction, sentences, tokenizer)


def _golden(bundle: Bundle) -> tuple[BundleDirection, list[str]]:
    direction = bundle.manifest.directions[0]
    languages = (direction.source, direction.target)
    golden = [each.source for each in bundle.golden if (each.source_language, each.target_language) == languages]
    return direction, golden


def _test_set(bundle: Bundle, data: str) -> tuple[BundleDirection, list[str]]:
    corpus = read_corpus(data, "test")
    for direction in bundle.manifest.directions:
        if (direction.source, direction.target) == corpus.languages:
            return direction, corpus.sources
    known = ", ".join(map(str, bundle.manifest.directions))
    raise CorpusError(f"data: {data}: {'-'.join(corpus.languages)}: expected what the bundle translates: {known}")


def _sources(
    bundle: Bundle, direction: BundleDirection, tokenizer: TextTokenizer, texts: Iterable[str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the texts that a server takes for one sentence each, and the tokens that it makes of them."""
    manifest = bundle.manifest
    for text in texts:
        source_ids = (*direction.source_prefix, *tokenizer.encode(text), *manifest.source_suffix)
        if Passage.of(text, direction.source, lambda _: True).plain and len(source_ids) <= manifest.max_source_tokens:
            yield text, source_ids
