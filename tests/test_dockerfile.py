"""What can be said of the image without building it: the instructions of its stages."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def read_stages() -> list[list[tuple[str, str]]]:
    """Returns (instruction, arguments) of each stage; comments and line continuations are resolved."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n", "", "\n".join(lines))
    stages: list[list[tuple[str, str]]] = []
    for line in filter(None, text.splitlines()):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, arguments.strip()))
    return stages


def final_stage(instruction: str) -> list[str]:
    return [arguments for name, arguments in read_stages()[-1] if name == instruction]


def commands(instruction: str) -> list[str]:
    return [arguments for stage in read_stages() for name, arguments in stage if name == instruction]


def test_the_default_target_is_the_cpu_image() -> None:
    assert final_stage("FROM") == ["base AS cpu"]


def test_the_base_is_pinned_to_the_python_of_the_project() -> None:
    bases = [arguments.split()[0] for arguments in commands("FROM") if not arguments.startswith("base ")]
    assert bases == ["python:3.11-slim"]


def test_it_runs_as_a_numeric_user_that_is_not_root() -> None:
    """Kubernetes can enforce `runAsNonRoot` only for a user that is a number."""
    (user,) = final_stage("USER")
    assert all(int(part) > 0 for part in user.split(":"))


def test_the_image_is_not_changed_after_the_user_is_set() -> None:
    names = [name for name, _ in read_stages()[-1]]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


def test_the_final_stage_installs_nothing() -> None:
    """It copies an environment: no package manager runs in it, and so no compiler comes with one."""
    assert final_stage("RUN") == []


def test_only_the_cpu_extra_is_installed() -> None:
    (installation,) = [command for command in commands("RUN") if "pip install" in command]
    assert re.findall(r"\[(.*?)\]", installation) == ["cpu"]


def test_the_installation_is_constrained_and_leaves_no_cache() -> None:
    (installation,) = [command for command in commands("RUN") if "pip install" in command]
    assert "--constraint constraints.txt" in installation
    assert "--no-cache-dir" in installation


def test_the_environment_is_copied_to_the_path_it_was_made_for() -> None:
    """A virtual environment holds its own path."""
    assert final_stage("COPY") == ["--from=build /opt/dragoman /opt/dragoman"]


@pytest.mark.parametrize("instruction", ["ENTRYPOINT", "CMD"])
def test_the_server_is_process_one(instruction: str) -> None:
    """In the exec form there is no shell between the container and the server that would swallow its signals."""
    (arguments,) = final_stage(instruction)
    assert isinstance(json.loads(arguments), list)


def test_the_container_is_stopped_by_sigterm() -> None:
    assert final_stage("STOPSIGNAL") == ["SIGTERM"]


def test_the_health_check_is_python_that_asks_for_liveness() -> None:
    (check,) = final_stage("HEALTHCHECK")
    interpreter, flag, program = json.loads(check[check.index("[") :])
    assert (interpreter, flag) == ("python", "-c")
    assert "http://127.0.0.1:8000/healthz" in program
    ast.parse(program)


def test_every_package_of_the_project_travels_to_the_builder() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packages = [name for name in build["targets"]["wheel"]["only-include"] if "." not in name]
    copied = " ".join(commands("COPY"))
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in allowed
    for package in packages:
        assert f"{package}/ {package}/" in copied
        assert f"!{package}/" in allowed
