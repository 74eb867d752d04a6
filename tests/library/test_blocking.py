"""The blocking translator: results as of each text alone, bounded memory, typed errors, threads, forks and exits."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    ClosedError,
    DeadlineError,
    InvalidArgumentError,
    ModelError,
    TranslationDelta,
    TranslationResponse,
    Translator,
)
from dragoman.serve.local.chunks import CHUNK_TEXTS, IN_FLIGHT
from dragoman.serve.translation.fields import SearchFields
from tests.library.conftest import BUNDLE, TEXTS, run_program
from tests.support.cases import cases

CASES = cases(__file__)

SLEEPS = "A man is sleeping."
SCHLAEFT = "Ein Mann schläft."


def endless(taken: list[int]) -> Iterator[str]:
    while True:
        taken.append(len(taken))
        yield SLEEPS


def test_a_string_gives_one_translation_and_a_list_a_list(translator: Translator) -> None:
    assert translator.translate(SLEEPS).text == SCHLAEFT
    assert [translation.text for translation in translator.translate([SLEEPS])] == [SCHLAEFT]
    assert translator.translate([]) == []


def test_each_text_of_a_list_is_translated_as_if_alone(translator: Translator) -> None:
    together = translator.translate(TEXTS, beam_size=2)
    assert len(together) == len(TEXTS) > CHUNK_TEXTS
    for index in (0, 1, CHUNK_TEXTS - 1, CHUNK_TEXTS, len(TEXTS) - 1):
        assert together[index] == translator.translate(TEXTS[index], beam_size=2)
    assert list(translator.translate_iterable(iter(TEXTS), beam_size=2)) == together


def test_a_blank_text_has_an_empty_translation(translator: Translator) -> None:
    assert [result.text for result in translator.translate(["", SLEEPS, " \n"])] == ["", SCHLAEFT, ""]
    assert translator.translate("").text == ""


def test_an_iterable_is_read_as_far_as_results_are_taken(translator: Translator) -> None:
    taken: list[int] = []
    results = translator.translate_iterable(endless(taken))
    assert next(results).text == SCHLAEFT
    assert len(taken) <= CHUNK_TEXTS * IN_FLIGHT
    results.close()  # type: ignore[attr-defined]
    assert translator.translate(SLEEPS).text == SCHLAEFT


def test_a_slow_iterable_does_not_hold_up_its_first_texts(translator: Translator) -> None:
    def slow() -> Iterator[str]:
        for _ in range(2 * IN_FLIGHT):
            yield SLEEPS
            time.sleep(0.1)
        pytest.fail("a result was due")

    assert next(translator.translate_iterable(slow())).text == SCHLAEFT


def test_search_options_are_keyword_arguments_or_a_record(translator: Translator) -> None:
    given = translator.translate(SLEEPS, beam_size=4, hypotheses=3)
    assert len(given.alternatives) == 2
    assert translator.translate(SLEEPS, options=SearchFields(beam_size=4, hypotheses=3)) == given
    assert translator.translate(SLEEPS, options=SearchFields(beam_size=4), hypotheses=3) == given


def test_a_prefix_belongs_to_its_text_in_every_chunk(translator: Translator) -> None:
    prefixes = ["Zwei" if index in (1, len(TEXTS) - 1) else "" for index in range(len(TEXTS))]
    results = translator.translate(TEXTS, target_prefix=prefixes)
    assert [index for index, result in enumerate(results) if result.text.startswith("Zwei")][-1] == len(TEXTS) - 1


def test_a_stream_grows_to_the_translation(translator: Translator) -> None:
    *deltas, response = translator.stream(SLEEPS)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TranslationDelta)) == SCHLAEFT
    assert isinstance(response, TranslationResponse)
    assert response.translations[0].text == SCHLAEFT


@pytest.mark.parametrize(("options", "field"), CASES["an invalid option is named"])
def test_an_invalid_option_is_named(options: dict[str, Any], field: str, translator: Translator) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{field}: .*") as refused:
        translator.translate([SLEEPS], **options)
    assert (refused.value.field, str(refused.value)) == (field, f"{field}: {refused.value.problem}")


@pytest.mark.parametrize("bad", ["a\0b", 5])
def test_an_invalid_text_is_named_by_its_index_in_the_list(bad: Any, translator: Translator) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        translator.translate([" ", *TEXTS[:CHUNK_TEXTS], " ", SLEEPS, bad])
    assert refused.value.field == f"text[{CHUNK_TEXTS + 3}]"


def test_a_call_ends_at_its_timeout(translator: Translator) -> None:
    with pytest.raises(DeadlineError):
        translator.translate(TEXTS * 20, timeout_seconds=0.05)
    with pytest.raises(DeadlineError):
        list(translator.translate_iterable(TEXTS, timeout_seconds=1e-6))


def test_threads_share_a_translator_and_a_second_one_is_independent(translator: Translator) -> None:
    expected = translator.translate(TEXTS[:40])
    with Translator(BUNDLE, engines=1) as second, ThreadPoolExecutor(8) as threads:
        calls = [threads.submit((translator, second)[number % 2].translate, TEXTS[:40]) for number in range(8)]
        assert all(call.result() == expected for call in calls)


def test_closing_ends_the_calls_of_other_threads() -> None:
    translator = Translator(BUNDLE, engines=1)
    started, ended = threading.Event(), list[BaseException]()

    def work() -> None:
        results = translator.translate_iterable(endless([]))
        next(results)
        started.set()
        try:
            list(results)
        except ClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    translator.close()
    thread.join()
    assert [str(error) for error in ended] == ["the translator is closed"]
    with pytest.raises(ClosedError):
        translator.translate(SLEEPS)
    translator.close()


def test_a_fork_refuses_the_translator_of_its_parent_and_opens_its_own(translator: Translator) -> None:
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(ClosedError, match="open one in each process"):
                translator.translate(SLEEPS)
            translator._thread.close()
            with Translator(BUNDLE, engines=1) as own:
                assert own.translate(SLEEPS).text == SCHLAEFT
        except BaseException:  # noqa: BLE001 - the child must not continue the tests
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert translator.translate(SLEEPS).text == SCHLAEFT


def test_a_program_ends_without_closing_and_finds_nothing_of_ours_on_its_streams() -> None:
    held = f"import dragoman; held = dragoman.Translator({str(BUNDLE)!r}); print(held.translate({SLEEPS!r}).text)"
    dropped = f"import dragoman; print(dragoman.Translator({str(BUNDLE)!r}).translate({SLEEPS!r}).text)"
    assert [run_program(program, PYTHONUTF8="1") for program in (held, dropped)] == [f"{SCHLAEFT}\n"] * 2


def test_what_cannot_be_opened_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file or folder"):
        Translator("no such model")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ModelError, match=r"manifest\.json"):
        Translator(tmp_path)
    with pytest.raises(InvalidArgumentError, match="engines: 0, expected"):
        Translator(BUNDLE, engines=0)
    with pytest.raises(InvalidArgumentError, match="port: unknown, expected one of device"):
        Translator(BUNDLE, port=1)  # type: ignore[call-arg]
