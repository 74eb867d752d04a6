"""Models of pairs for a server that fetches them on demand, from a hub on this machine."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog

from dragoman.hub import on_demand
from dragoman.hub.names import HubError
from dragoman.hub.on_demand import CatalogSource
from dragoman.hub.serve_command import ServeModelsCommand
from dragoman.hub.store import Store
from tests.support.fake_hub import FakeHub
from tests.support.firefox_registry import student_files
from tests.support.live import eventually

GIGABYTE = 10**9


def source(wanted: str = "en-de", max_bytes: int = GIGABYTE, max_fetches: int = 2) -> CatalogSource:
    return CatalogSource(wanted, max_bytes, max_fetches)


@pytest.fixture(autouse=True)
def _usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise fetches would wait for all other tests."""
    monkeypatch.setattr(on_demand, "NICENESS", 0)


@pytest.fixture
def listed(fake_hub: FakeHub, tmp_path: Path) -> FakeHub:
    """A registry with two models."""
    for pair in ("en-de", "de-en"):
        fake_hub.registry.add(pair, student_files(tmp_path))
    return fake_hub


def test_a_pair_is_fetched_in_another_process_and_found_later_without_the_hub(hub: FakeHub) -> None:
    first = source()
    assert first.pairs == {"en-de": ("en", "de")}
    assert first.find("en-de") is None
    assert not hub.requests
    with structlog.testing.capture_logs() as logged:
        bundle = first.fetch("en-de")
    assert (bundle / "manifest.json").is_file()
    assert {entry["event"] for entry in logged} == {"fetch"}
    assert any("downloads" in entry["line"] for entry in logged)
    asked = len(hub.requests)
    assert source("all").find("en-de") == bundle
    assert first.fetch("en-de") == bundle
    assert len(hub.requests) == asked
    assert first.progress() == {}


def test_all_processes_see_a_fetch_and_the_next_one_continues_when_the_server_stops(listed: FakeHub) -> None:
    listed.stalls.append(100_000)
    fetching, other = source(), source()
    with ThreadPoolExecutor() as pool:
        fetch = pool.submit(fetching.fetch, "en-de")
        eventually(lambda: other.progress().get("en-de", (0, 0))[0] > 50_000)
        done, total = other.progress()["en-de"]
        assert done < total
        fetching.stop()
        with pytest.raises(HubError, match=r"."):
            fetch.result()
    assert other.progress() == {}
    listed.requests.clear()
    assert other.fetch("en-de").is_dir()
    assert "bytes=100000-" in [given for _, _, given in listed.requests]


def test_the_progress_of_a_process_that_was_killed_is_not_shown(store: Store) -> None:
    with store.fetching("en-de", GIGABYTE) as show:
        show(1, 2)
        assert source().progress() == {"en-de": (1, 2)}
        left = (store.folder / "fetches" / "en-de").read_bytes()
    (store.folder / "fetches" / "en-de").write_bytes(left)
    assert source().progress() == {}


def test_all_processes_together_fetch_as_many_models_at_once_as_are_allowed(listed: FakeHub) -> None:
    listed.stalls += [100_000, 100_000]
    sources = [source("en-de,de-en", max_fetches=1) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        fetches = [pool.submit(item.fetch, name) for item, name in zip(sources, ("en-de", "de-en"), strict=True)]
        eventually(lambda: bool(sources[0].progress()))
        (fetched,) = sources[0].progress()
        sources[("en-de", "de-en").index(fetched)].stop()
        eventually(lambda: sources[0].progress().keys() == {"en-de", "de-en"} - {fetched})
        for item in sources:
            item.stop()
        for fetch in fetches:
            with pytest.raises(HubError, match=r"."):
                fetch.result()


def test_no_model_is_fetched_beyond_the_limit_of_the_disk(listed: FakeHub) -> None:
    with pytest.raises(HubError, match="--on-demand-max-bytes"):
        source(max_bytes=0).fetch("en-de")
    assert not listed.requests
    with pytest.raises(HubError, match="--on-demand-max-bytes leaves 1,000"):
        source(max_bytes=1000).fetch("en-de")
    assert not any("exported" in path for _, path, _ in listed.requests)


@pytest.mark.usefixtures("listed")
def test_fetches_that_start_together_stay_within_the_limit_of_the_disk(tmp_path: Path) -> None:
    total_bytes = sum(map(len, student_files(tmp_path).values()))
    both = source("en-de,de-en", max_bytes=total_bytes * 3 // 2)
    with ThreadPoolExecutor() as pool:
        fetches = [pool.submit(both.fetch, name) for name in ("en-de", "de-en")]
        problems = [str(problem) for fetch in fetches if (problem := fetch.exception()) is not None]
    assert len(problems) == 1
    assert "--on-demand-max-bytes leaves" in problems[0]


def test_a_failed_fetch_has_the_reason_of_its_process(fake_hub: FakeHub) -> None:
    with pytest.raises(HubError, match=f"{fake_hub.address}/argos/index.json has no package"):
        source("qq-zz").fetch("qq-zz")


@pytest.mark.parametrize("wanted", ["german", "en-de,", "firefox:en-de"])
def test_a_list_of_something_else_than_pairs_is_refused(hub: FakeHub, wanted: str) -> None:
    assert hub.address
    with pytest.raises(HubError, match=r"--on-demand: .*: expected all, or pairs"):
        source(wanted)


def test_the_setting_names_the_pairs(hub: FakeHub) -> None:
    assert hub.address
    assert ServeModelsCommand().model_source() is None
    found = ServeModelsCommand(on_demand="en-de,zh_hant-en").model_source()
    assert found is not None
    assert found.pairs == {"en-de": ("en", "de"), "zh-Hant-en": ("zh-Hant", "en")}
