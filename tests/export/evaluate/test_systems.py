"""The kinds of systems: detection, equal translations, and errors."""

import gzip
from pathlib import Path

import pytest

from dragoman.export.evaluate.system import Search, SystemUnusableError
from dragoman.export.evaluate.systems import open_system
from dragoman.model.data.corpus import Corpus, read_corpus
from dragoman.model.run import RunFolder
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.cases import cases
from tests.support.live import LiveService, run_service
from tests.support.toy import RANDOM_TEXTS, toy_test_sentences, translate_toy, write_pairs

CASES = cases(__file__)

pytestmark = pytest.mark.usefixtures("restored_logs")

GREEDY = Search(beam_size=1, length_penalty=1.0)


class Count:
    """A progress bar without output."""

    def __init__(self) -> None:
        self.sentences = 0.0

    def update(self, n: float = 1) -> None:
        self.sentences += n


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return read_corpus(write_pairs(tmp_path, "some", toy_test_sentences()[:80]))


def translate(name: str | Path, *corpora: Corpus, search: Search = GREEDY) -> list[list[str]]:
    progress = Count()
    translations = open_system(str(name), search).translate(corpora, progress)
    assert progress.sentences == sum(map(len, corpora))
    return translations


def refusal(name: str | Path, *corpora: Corpus) -> str:
    with pytest.raises(SystemUnusableError) as raised:
        translate(name, *corpora)
    return str(raised.value)


def reverse(corpus: Corpus) -> Corpus:
    return Corpus(corpus.target_language, corpus.source_language, corpus.targets, corpus.sources)


def test_translations_keep_the_order_of_the_sources(toy_run: RunFolder, corpus: Corpus) -> None:
    """Sources of similar length are translated together."""
    backwards = Corpus("en", "de", corpus.sources[::-1], corpus.targets[::-1])
    assert translate(toy_run.path, backwards) == [translate(toy_run.path, corpus)[0][::-1]]


@pytest.mark.parametrize("kind", ["run", "bundle"])
def test_every_corpus_has_its_translations(toy_run: RunFolder, toy_bundle: Path, corpus: Corpus, kind: str) -> None:
    name = {"run": toy_run.path, "bundle": toy_bundle}[kind]
    parts = [Corpus("en", "de", corpus.sources[cut], corpus.targets[cut]) for cut in (slice(30), slice(30, None))]
    first, second = translate(name, *parts)
    assert [first + second] == translate(name, corpus)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_has_lines_of_one_corpus_after_the_other(tmp_path: Path, corpus: Corpus, suffix: str) -> None:
    lines = [f"line {number}" for number in range(2 * len(corpus))]
    text = "".join(f"{line}\n" for line in lines).encode()
    path = tmp_path / f"translations{suffix}"
    path.write_bytes(gzip.compress(text) if suffix else text)
    assert translate(path, corpus, reverse(corpus)) == [lines[: len(corpus)], lines[len(corpus) :]]


def test_an_empty_line_is_a_translation(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "translations").write_text("\n" * len(corpus))
    assert translate(tmp_path / "translations", corpus) == [[""] * len(corpus)]


def test_the_kind_of_a_system_is_detected(toy_run: RunFolder, toy_bundle: Path) -> None:
    names: list[str | Path] = [toy_run.path, toy_bundle, "grpc://localhost:8001", "http://[::1]:8000", toy_run.config]
    assert [open_system(str(name), GREEDY).kind for name in names] == ["run", "bundle", "server", "server", "file"]


@pytest.mark.parametrize("url", CASES["an address needs a known scheme a host and a port"])
def test_an_address_needs_a_known_scheme_a_host_and_a_port(url: str) -> None:
    expected = "grpc://HOST:PORT, http://HOST:PORT or https://HOST:PORT"
    assert refusal(url) == f"{url}: expected {expected}"


def test_a_run_that_cannot_be_loaded_is_reported(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "config.yaml").touch()
    assert refusal(tmp_path, corpus).startswith(f"{tmp_path}: holds no checkpoint")


def test_a_bundle_that_cannot_be_loaded_is_reported(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "manifest.json").write_text("{")
    assert refusal(tmp_path, corpus).startswith(f"{tmp_path / 'manifest.json'}: not JSON")


@pytest.mark.parametrize("scheme", ["grpc", "http", "https"])
def test_an_unreachable_server_is_reported(corpus: Corpus, scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:1"
    assert refusal(url, corpus.select([0])).startswith(f"{url}: en-de, sentence 1: ")


def test_data_of_another_direction_are_refused(
    toy_run: RunFolder, toy_bundle: Path, toy_server: LiveService, corpus: Corpus
) -> None:
    names: list[str | Path] = [toy_bundle, f"grpc://{toy_server.grpc_target}", toy_server.http_url]
    assert refusal(toy_run.path, reverse(corpus)) == f"{toy_run.path}: does not translate de-en, expected one of en-de"
    for name in names:
        assert refusal(name, reverse(corpus)).startswith(f"{name}: de-en, sentence 1: ")


def test_a_sentence_that_is_too_long_is_reported(
    toy_run: RunFolder, toy_bundle: Path, toy_server: LiveService, corpus: Corpus
) -> None:
    """Omitting the sentence would change the test set."""
    long = " ".join(["bird"] * 40)
    with_long = Corpus("en", "de", [corpus.sources[0], long], [corpus.targets[0], translate_toy(long)])
    for name in (toy_run.path, toy_bundle, f"grpc://{toy_server.grpc_target}", toy_server.http_url):
        message = refusal(name, with_long)
        assert message.startswith(f"{name}: en-de, sentence 2: ")
        assert message.endswith("tokens, expected at most 32")


def test_every_kind_uses_the_requested_search(two_way_run: RunFolder, two_way_bundle: Path) -> None:
    """A large length penalty favors longer translations, which greedy search does not find.

    The model is untrained: the hypotheses of a trained model may not differ from greedy search.
    """
    corpus = Corpus("en", "de", list(RANDOM_TEXTS), list(RANDOM_TEXTS))
    with run_service(two_way_bundle, [load_sessions(Bundle.open(two_way_bundle), threads=1).runtime(slots=8)]) as live:
        names: list[str | Path] = [two_way_run.path, two_way_bundle, f"grpc://{live.grpc_target}", live.http_url]
        run, *others = (translate(name, corpus, search=Search(beam_size=8, length_penalty=10)) for name in names)
    assert others == [run] * 3
    assert run != translate(two_way_run.path, corpus)


def _repeats(text: str) -> bool:
    words = text.split()
    return len(set(words)) < len(words)


def test_forbidden_n_grams_do_not_repeat(two_way_run: RunFolder, two_way_bundle: Path) -> None:
    corpus = Corpus("en", "de", list(RANDOM_TEXTS), list(RANDOM_TEXTS))
    search = Search(beam_size=1, length_penalty=1.0, no_repeat_ngram_tokens=1)
    assert any(_repeats(text) for text in translate(two_way_bundle, corpus)[0])
    assert not any(_repeats(text) for text in translate(two_way_bundle, corpus, search=search)[0])
    with pytest.raises(SystemUnusableError, match=r"^no-repeat-ngram-tokens: 1: .*: run, expected a bundle or a serv"):
        translate(two_way_run.path, corpus, search=search)


def test_an_ensemble_of_a_run_with_itself_translates_like_the_run(toy_run: RunFolder, corpus: Corpus) -> None:
    name = f"{toy_run.path},{toy_run.path}"
    assert translate(name, corpus) == translate(toy_run.path, corpus)
    beam = Search(beam_size=3, length_penalty=1.0)
    assert translate(name, corpus, search=beam) == translate(toy_run.path, corpus, search=beam)
    assert open_system(name, GREEDY).kind == "ensemble"


def test_runs_with_different_tokenizers_are_no_ensemble(
    toy_run: RunFolder, two_way_run: RunFolder, corpus: Corpus, tmp_path: Path
) -> None:
    assert "expected the tokenizer of" in refusal(f"{toy_run.path},{two_way_run.path}", corpus)
    assert "holds no checkpoint" in refusal(f"{toy_run.path},{tmp_path}/none", corpus)
