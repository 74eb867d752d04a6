"""Where a setting comes from, and what is said about one that cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import dragoman
from serve.cpus import available_cpus
from serve.settings import ServeCommand


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[ServeCommand]:
    """The commands that would have run."""
    commands: list[ServeCommand] = []
    monkeypatch.setattr(ServeCommand, "cli_cmd", commands.append)
    return commands


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "dragoman.yaml"
    path.write_text("slots: 1\nhttp_port: 1001\ngrpc_port: 1002\n")
    return path


def run(*arguments: str) -> None:
    dragoman.run("serve", list(arguments))


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    received: list[ServeCommand], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_SLOTS", "2")
    monkeypatch.setenv("DRAGOMAN_HTTP_PORT", "2001")
    run("folder", "--config", str(config), "--slots", "3")
    (command,) = received
    assert (command.slots, command.http_port, command.grpc_port) == (3, 2001, 1002)


def test_the_environment_names_the_file_and_the_bundle(
    received: list[ServeCommand], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_CONFIG", str(config))
    monkeypatch.setenv("DRAGOMAN_BUNDLE", "elsewhere")
    run()
    (command,) = received
    assert (command.bundle, command.slots) == (Path("elsewhere"), 1)


def test_every_setting_may_stand_in_the_file(received: list[ServeCommand], tmp_path: Path) -> None:
    values = ServeCommand().model_dump(mode="json", exclude={"config"}, exclude_none=True)
    path = tmp_path / "all.yaml"
    path.write_text("".join(f"{name}: {value}\n" for name, value in values.items()))
    run("--config", str(path))
    assert received[0].model_dump(exclude={"config"}) == ServeCommand().model_dump(exclude={"config"})


def test_an_unknown_setting_in_the_file_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("slot: 3\n")
    with pytest.raises(SystemExit):
        run("--config", str(path))
    assert "slot: Extra inputs are not permitted (given: 3)" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["- a\n- list\n", "just text", "", "a: [", b"\xff\xfe\xfa"])
def test_a_file_that_holds_no_settings_is_refused_by_path(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SystemExit, match=f"^dragoman serve: config: {path}: "):
        run("--config", str(path))


def test_a_missing_file_is_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman serve: config: {tmp_path}/none.yaml: .*No such file"):
        run("--config", f"{tmp_path}/none.yaml")


@pytest.mark.parametrize(
    "option",
    [
        {"slots": 0},
        {"engines": 0},
        {"threads_per_engine": 0},
        {"mode": "fast"},
        {"http_port": 65536},
        {"max_texts": 0},
        {"max_body_bytes": 0},
        {"request_timeout_seconds": 0},
        {"request_timeout_seconds": float("inf")},
        {"lame_duck_seconds": -1},
        {"queue_limit": -1},
        {"running_token_budget": 0},
        {"log_format": "xml"},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(option: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as raised:
        ServeCommand.model_validate(option)
    assert [error["loc"] for error in raised.value.errors()] == [tuple(option)]


@pytest.mark.parametrize(
    ("options", "engines", "threads"),
    [
        ({}, 6, 1),
        ({"mode": "throughput"}, 6, 1),
        ({"mode": "latency"}, 1, 6),
        ({"mode": "latency", "engines": 2}, 2, 3),
        ({"mode": "latency", "engines": 9}, 9, 1),
        ({"mode": "latency", "threads_per_engine": 2}, 1, 2),
        ({"threads_per_engine": 2}, 3, 2),
        ({"threads_per_engine": 9}, 1, 9),
        ({"engines": 4}, 4, 1),
        ({"mode": "latency", "engines": 4, "threads_per_engine": 5}, 4, 5),
    ],
)
def test_the_mode_shares_out_the_cpus_unless_it_is_told_how(
    options: dict[str, object], engines: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.settings.available_cpus", lambda: 6)
    command = ServeCommand.model_validate(options)
    assert (command.engine_count, command.engine_threads) == (engines, threads)


def test_by_default_there_is_an_engine_for_each_cpu_and_a_queue_of_four_for_each_slot() -> None:
    command = ServeCommand(slots=3)
    assert command.engine_count == available_cpus()
    assert command.total_slots == 3 * available_cpus()
    assert command.max_waiting == 4 * command.total_slots


def test_engines_and_queue_can_be_set() -> None:
    command = ServeCommand(slots=3, engines=2, queue_limit=0)
    assert (command.engine_count, command.total_slots, command.max_waiting) == (2, 6, 0)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(ServeCommand(), "slots", 2)  # noqa: B010 - mypy rightly refuses the plain form


def test_every_setting_is_explained() -> None:
    unexplained = [name for name, field in ServeCommand.model_fields.items() if not field.description]
    assert unexplained == []


def test_help_loads_neither_the_service_nor_its_libraries() -> None:
    program = """
import sys
import dragoman
try:
    dragoman.run("serve", ["--help"])
except SystemExit:
    print(sorted({"serve.app", "grpc", "fastapi", "onnxruntime", "uvicorn"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "--drain-seconds" in result.stdout
    assert result.stdout.splitlines()[-1] == "[]"
