"""Shared fixtures: a tiny tokenizer, a live service with fake models, tiny models and their bundles."""

import fcntl
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import structlog
from hypothesis import settings

from dragoman.model.tokenizer.tokenizer import Tokenizer, train_tokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import AttentionHead, Precision
from dragoman.serve.observability.log_writer import LOG_WRITER
from tests.support.fake_bundles import LONG_TEXT, MAX_TARGET_TOKENS, write_bundle
from tests.support.fakes import EOS_ID, VOCABULARY, FakeModel, FiniteModel, translate
from tests.support.live import GatedModel, LiveService, run_service
from tests.support.sandboxes import shared_template

if TYPE_CHECKING:
    from dragoman.model.network.transformer import Transformer
    from dragoman.model.run import RunFolder
    from tests.support.toy import ToyBundles

pytest_plugins = ("tests.support.forked", "tests.support.promises", "tests.support.tiers")

# A second thread only slows tiny models down, the more so on busy CPUs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts background processes with SIGINT ignored, which their children inherit; children of tests need SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The default of structlog formats all local variables, which takes a second per provoked error.
PLAIN_LOGS: list[Any] = [
    structlog.stdlib.add_log_level,
    structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
]
structlog.configure(processors=PLAIN_LOGS)


def pytest_configure(config: pytest.Config) -> None:
    """Sets the default number of examples; no test fails because the machine is busy."""
    settings.register_profile("tests", deadline=None, max_examples=100 if config.getoption("--thorough") else 40)
    settings.load_profile("tests")


# Collections while all tests are imported would take seconds and free little.
gc.disable()


def pytest_collection_finish() -> None:
    """Excludes the imported libraries from garbage collections, which would traverse them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _kept_memory() -> Iterator[None]:
    """Services in this process trim no memory: with all imported libraries, that takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.serve.registry.reloader.trim_memory", lambda: None)
        patch.setattr("dragoman.serve.registry.keeper.trim_memory", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _shared_template() -> Iterator[None]:
    with shared_template():
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests run in asyncio."""
    return "asyncio"


HEADS = (AttentionHead(layer=0, head=1), AttentionHead(layer=0, head=0))
WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "three", "house", "garden", "river")
LINES = [f"{first} {second} {third}." for first in WORDS for second in WORDS for third in WORDS[:4]]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    tokenizer = train_tokenizer(LINES, vocabulary_size=60)
    target_ids, _, _ = translate((*tokenizer.encode(LONG_TEXT), EOS_ID), MAX_TARGET_TOKENS)
    assert len(target_ids) > 5, "with this tokenizer, another text has to be the long one"
    return tokenizer


@pytest.fixture(scope="session")
def two_way_tokenizer() -> Tokenizer:
    """A tokenizer for a model that writes German and English."""
    return train_tokenizer(LINES, vocabulary_size=60, target_languages=("de", "en"))


@pytest.fixture(scope="session")
def bundle_path(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose golden sentences are those of the fake model; its graphs are never opened."""
    return write_bundle(tmp_path_factory.mktemp("bundle"), tokenizer)


@pytest.fixture
def model() -> GatedModel:
    return GatedModel(1)


@pytest.fixture
def gated(bundle_path: Path, model: GatedModel) -> Iterator[LiveService]:
    """A ready service with one slot, one place in the queue and a model with a gate."""
    with run_service(bundle_path, [model], queue_limit=1, leaping=True) as service:
        model.stepping.clear()
        model.steps.clear()
        yield service


@pytest.fixture
def stepwise(gated: LiveService, model: GatedModel) -> Iterator[LiveService]:
    """The same; the model makes one step per opening of the gate."""
    model.on_step = model.gate.clear
    yield gated
    model.on_step = lambda: None


@pytest.fixture(scope="session")
def letters() -> Tokenizer:
    """A tokenizer for two letters, with as many tokens as the fake model: such text can be forced and scored."""
    tokenizer = train_tokenizer(["ab ba", "abba a", "b aab", "ba bab"] * 9, vocabulary_size=VOCABULARY)
    assert tokenizer.vocabulary_size == VOCABULARY
    return tokenizer


@pytest.fixture(scope="session")
def letters_bundle(letters: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("letters"), letters, alignment_heads=HEADS[1:])


@pytest.fixture(scope="module")
def letters_live(letters_bundle: Path) -> Iterator[LiveService]:
    """A service with alignments of its fake model; one request of the widest search fills all slots."""
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, queue_limit=8) as service:
        yield service


@pytest.fixture(scope="module")
def finite_live(letters_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service for hostile input: its fake model accepts any forced token."""
    settings: dict[str, Any] = {"admin_key": "key", "state_dir": tmp_path_factory.mktemp("state")}
    with run_service(letters_bundle, [FiniteModel(8)], alignments=True, **settings) as service:
        yield service


@pytest.fixture
def live(bundle_path: Path) -> Iterator[LiveService]:
    """A ready service with small limits, in front of two engines with fake models."""
    with run_service(bundle_path) as service:
        yield service


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server; tests create databases of their own."""
    from tests.support.postgresql import run_postgresql  # noqa: PLC0415 - few tests need it

    with run_postgresql() as url:
        yield url


@pytest.fixture(params=[pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.database)])
def state_url(request: pytest.FixtureRequest) -> str | None:
    """The setting `state_url` for each kind of database, which is empty."""
    if request.param == "sqlite":
        return None
    from tests.support.postgresql import new_database  # noqa: PLC0415 - as above

    return new_database(request.getfixturevalue("postgresql"), f"test_{uuid4().hex}")


# Returns the folder of a name, filled by the first test of any process.
Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Builds slow artifacts once for all test processes; tests must not change them."""
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = common / "once" / name, common / "once" / f"{name}.done"
        folder.parent.mkdir(exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                fill(folder)
                done.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def toy() -> Any:
    """The module that trains and exports models; serving tests start without it and torch."""
    return import_module("tests.support.toy")


@pytest.fixture(scope="session")
def toy_run(once: Once, toy: Any) -> "RunFolder":
    """A trained tiny model, next to its data."""

    def train(folder: Path) -> None:
        folder.mkdir()
        toy.train_toy(folder)

    run: RunFolder = toy.RunFolder(once("toy_run", train) / "run")
    return run


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory, toy: Any) -> str:
    """A few pairs of the toy language outside the training data, as a data specification."""
    return str(toy.write_pairs(tmp_path_factory.mktemp("data"), "few", toy.toy_test_sentences()[:50]))


@pytest.fixture(scope="session")
def toy_bundles(toy_run: "RunFolder", once: Once, toy: Any) -> "ToyBundles":

    def make(precision: Precision) -> Path:
        samples, options = toy.samples_of(toy.toy_test_sentences()[:20]), toy.BundleOptions("toy", precision=precision)
        return once(f"toy-{precision}", lambda out: toy.export_run(toy_run.load(), samples, out, options))

    return make


@pytest.fixture(scope="session")
def toy_bundle(toy_bundles: "ToyBundles") -> Path:
    """The toy model, exported for serving."""
    return toy_bundles("fp32")


@pytest.fixture(scope="session")
def two_way_run(two_way_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, toy: Any) -> "RunFolder":
    """The run of an untrained model between English and German."""
    run: RunFolder = toy.write_two_way_run(tmp_path_factory.mktemp("two_way"), two_way_tokenizer)
    return run


@pytest.fixture(scope="session")
def two_way_bundle(two_way_run: "RunFolder", once: Once, toy: Any) -> Path:
    """The same model, exported for serving."""
    samples = toy.samples_of(toy.RANDOM_TEXTS, toy.TWO_WAYS)
    return once("two_way", lambda out: toy.export_run(two_way_run.load(), samples, out, toy.BundleOptions("two_way")))


@pytest.fixture(scope="module")
def toy_server(toy_bundle: Path) -> Iterator[LiveService]:
    """The toy model behind both interfaces."""
    from dragoman.serve.runtime.sessions import load_sessions  # noqa: PLC0415 - tests with fake models need no ONNX Runtime

    models = [load_sessions(Bundle.open(toy_bundle), threads=1).runtime(slots=8)]
    with run_service(toy_bundle, models) as service:
        yield service


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Restores the logs after a command that configures them."""
    handlers, level = logging.root.handlers[:], logging.root.level
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    LOG_WRITER.open(None)
    structlog.reset_defaults()
    structlog.configure(processors=PLAIN_LOGS)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture(scope="session")
def untrained(tokenizer: Tokenizer, once: Once, toy: Any) -> Callable[..., Bundle]:
    """Exports a model under a name, with options of its bundle."""

    def export(name: str, model: "Transformer", **options: Any) -> Bundle:
        given = toy.BundleOptions(name, **options)
        return Bundle.open(once(name, lambda out: toy.export_model(model, tokenizer, out, options=given)))

    return export


@pytest.fixture(scope="session")
def wide_bundle(tokenizer: Tokenizer, untrained: Callable[..., Bundle], toy: Any) -> Bundle:
    """An untrained model that is wide enough to compute rows differently by their number."""
    return untrained("wide", toy.random_model(1, tokenizer.vocabulary_size, **toy.WIDE))


@pytest.fixture(scope="session")
def aligned_bundle(tokenizer: Tokenizer, untrained: Callable[..., Bundle], toy: Any) -> Bundle:
    """A model as wide, which returns the attention of two heads."""
    return untrained("aligned", toy.random_model(3, tokenizer.vocabulary_size, **toy.WIDE), alignment_heads=HEADS)


@pytest.fixture(scope="session")
def int8_bundle(tokenizer: Tokenizer, untrained: Callable[..., Bundle], toy: Any) -> Bundle:
    """A model as wide, with a layer more, in int8."""
    return untrained("int8", toy.random_model(1, tokenizer.vocabulary_size, **toy.DEEP), precision="int8")


@pytest.fixture(scope="session")
def states_bundle(tokenizer: Tokenizer, once: Once, toy: Any) -> Bundle:
    """The wide model as graphs for GPUs in fp32; its aligned decoder returns the attention of two heads."""
    model = toy.random_model(1, tokenizer.vocabulary_size, **toy.WIDE)
    return Bundle.open(once("states", lambda out: toy.export_for_cuda(model, tokenizer, out, HEADS)))
