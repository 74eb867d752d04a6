"""Sources of settings, their output as YAML, and the errors of invalid ones."""

import json
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from dragoman import command_line
from dragoman.hub.serve_command import ServeModelsCommand
from dragoman.serve.host.system import available_cpus
from dragoman.serve.settings import ModelSettings, ServeSettings
from tests.support.cases import cases

CASES = cases(__file__)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """Commands that run, without effect."""
    commands: list[ServeSettings] = []
    monkeypatch.setattr(ServeModelsCommand, "cli_cmd", commands.append)
    return commands


def run(*arguments: str) -> None:
    command_line.run("serve", list(arguments))


def run_file(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    run("--config", str(path))


def test_a_flag_precedes_the_environment_and_the_environment_precedes_the_file(
    received: list[ServeSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment may name the file too."""
    path = tmp_path / "dragoman.yaml"
    path.write_text("slots: 1\nhttp_port: 1001\ngrpc_port: 1002\n")
    environment = {"SLOTS": "2", "HTTP_PORT": "2001", "CONFIG": str(path), "BUNDLE": "elsewhere"}
    for name, value in environment.items():
        monkeypatch.setenv(f"DRAGOMAN_{name}", value)
    run("--slots", "3")
    (command,) = received
    assert (command.slots, command.http_port, command.grpc_port, command.bundle) == (3, 2001, 1002, Path("elsewhere"))


@pytest.mark.parametrize(("suffix", "sign"), [("yaml", ": "), ("toml", " = ")])
def test_each_setting_may_be_in_the_file(received: list[ServeSettings], tmp_path: Path, suffix: str, sign: str) -> None:
    values = ServeSettings().model_dump(mode="json", exclude={"config"}, exclude_none=True)
    content = "".join(f"{name}{sign}{json.dumps(value)}\n" for name, value in values.items())
    run_file(tmp_path / f"all.{suffix}", content)
    assert received[0].model_dump(exclude={"config"}) == ServeModelsCommand().model_dump(exclude={"config"})


@pytest.mark.parametrize(("name", "content", "where"), CASES["a name that a file cannot set is rejected by line"])
def test_a_name_that_a_file_cannot_set_is_rejected_by_line(tmp_path: Path, name: str, content: str, where: str) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman serve: config: {tmp_path}/{name}:{where}: "):
        run_file(tmp_path / name, content)


def test_the_error_suggests_a_similar_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"\bslots\?$"):
        run_file(tmp_path / "wrong.yaml", "slot: 3\n")


@pytest.mark.parametrize("content", ["- a\n- list\n", "just text", "", "a: [", b"\xff\xfe\xfa"])
def test_a_missing_file_and_one_without_settings_are_rejected_by_path(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "wrong.yaml"
    with pytest.raises(SystemExit, match=f"^dragoman serve: config: {path}: "):
        run("--config", str(path))
    with pytest.raises(SystemExit, match=f"^dragoman serve: config: {path}: "):
        run_file(path, content)


@pytest.mark.parametrize("option", CASES["a value out of range is rejected by name"])
def test_a_value_out_of_range_is_rejected_by_name(option: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as raised:
        ServeSettings.model_validate(option)
    assert [error["loc"] for error in raised.value.errors()] == [tuple(option)]


@pytest.mark.parametrize(("options", "engines", "threads"), CASES["the mode sets engines and threads"])
def test_the_mode_sets_engines_and_threads_unless_they_are_given(
    options: dict[str, object], engines: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.serve.settings.available_cpus", lambda: 6)
    command = ServeSettings.model_validate(options)
    assert (command.engine_count, command.engine_threads) == (engines, threads)


def test_by_default_there_is_an_engine_per_cpu_and_four_waiting_rows_per_slot() -> None:
    command = ServeSettings(slots=3)
    assert command.engine_count == available_cpus()
    assert command.total_slots == 3 * available_cpus()
    assert command.max_waiting == 4 * command.total_slots


def test_a_model_overrides_settings_and_inherits_the_others() -> None:
    command = ServeSettings(slots=3, engines=2, models={"small": ModelSettings(slots=1, queue_limit=0)})
    small, other = command.of_model("small"), command.of_model("other")
    assert (small.slots, small.engine_count, small.max_waiting, small.total_slots) == (1, 2, 0, 2)
    assert other == command


@pytest.mark.parametrize(("name", "text"), CASES["files override settings of models"])
def test_files_override_settings_of_models(received: list[ServeSettings], tmp_path: Path, name: str, text: str) -> None:
    run_file(tmp_path / name, text)
    assert received[0].of_model("small").slots == 1


def test_an_invalid_override_of_a_model_is_rejected_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_file(tmp_path / "models.yaml", "models:\n  small:\n    slots: 0\n")
    assert "--models.small.slots: " in capsys.readouterr().err


def test_printed_settings_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first.toml"
    first.write_text('host = "127.0.0.1"\n[models.small]\nslots = 1\nqueue_limit = 0\n')
    monkeypatch.setenv("DRAGOMAN_SLOTS", "7")
    run("somewhere", "--config", str(first), "--drain-seconds", "1.5", "--print-config")
    printed = capsys.readouterr().out
    monkeypatch.delenv("DRAGOMAN_SLOTS")
    second = tmp_path / "second.yaml"
    second.write_text(printed)
    run("--config", str(second), "--print-config")
    assert capsys.readouterr().out == printed
    read = ServeModelsCommand(config=second)
    assert (read.bundle, read.host, read.slots, read.drain_seconds) == (Path("somewhere"), "127.0.0.1", 7, 1.5)
    assert read.models == {"small": ModelSettings(slots=1, queue_limit=0)}


def test_no_output_contains_the_admin_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hidden" not in repr(ServeSettings(admin_key=SecretStr("hidden")))
    run("--admin-key", "very hidden", "--print-config")
    printed = capsys.readouterr().out
    assert "hidden" not in printed
    assert "# admin_key: set" in printed


def test_the_admin_key_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ServeSettings().read_admin_key() is None
    path = tmp_path / "key"
    path.write_text("from the file\n")
    assert ServeSettings(admin_key_file=path).read_admin_key() == "from the file"
    monkeypatch.setenv("DRAGOMAN_ADMIN_KEY", "from the environment")
    assert ServeSettings().read_admin_key() == "from the environment"
    with pytest.raises(SystemExit, match=f"^dragoman serve: --admin-key-file: {path}: "):
        ServeSettings(admin_key_file=path).read_admin_key()


@pytest.mark.parametrize("content", [None, b" \n", b"\xff"])
def test_a_file_without_a_key_is_rejected_by_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=f"^dragoman serve: --admin-key-file: {path}: "):
        ServeSettings(admin_key_file=path).read_admin_key()


def test_a_list_in_the_environment_is_json(
    received: list[ServeSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_CORS_ORIGINS", '["https://page.example"]')
    run()
    assert received[0].cors_origins == ("https://page.example",)
    monkeypatch.setenv("DRAGOMAN_CORS_ORIGINS", "https://page.example")
    with pytest.raises(SystemExit):
        run()
    assert "DRAGOMAN_CORS_ORIGINS" in capsys.readouterr().err
