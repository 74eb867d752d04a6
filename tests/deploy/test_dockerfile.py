"""Properties of the images without a build: the instructions of their stages."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

from dragoman.hub import argos, firefox
from dragoman.hub.names import LanguagePair, parse_name
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.settings import ServeSettings
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

Stage = list[tuple[str, str]]

each_image = pytest.mark.parametrize("target", ["cpu", "cuda", "train"])


def read_stages() -> dict[str, Stage]:
    """Returns (instruction, arguments) of each stage by name; comments and line continuations are resolved."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n", "", "\n".join(lines))
    stages: dict[str, Stage] = {}
    stage: Stage = []
    for line in filter(None, text.splitlines()):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            arguments = arguments.removeprefix("--platform=${BUILDPLATFORM} ")
            stage = stages.setdefault(arguments.partition(" AS ")[2], [])
        stage.append((name, arguments.strip()))
    return stages


STAGES = read_stages()


def lineage(name: str) -> Stage:
    """Returns the instructions of a stage, after those of its base stages."""
    stage = STAGES[name]
    parent = stage[0][1].partition(" AS ")[0]
    return (lineage(parent) if parent in STAGES else []) + stage


def arguments_of(stage: Stage, instruction: str) -> list[str]:
    return [arguments for name, arguments in stage if name == instruction]


def requirements(*extras: str) -> list[str]:
    script = [sys.executable, "deploy/requirements.py", *extras]
    return subprocess.run(script, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def test_the_linter_finds_nothing() -> None:
    subprocess.run([Path(sys.executable).with_name("hadolint"), "Dockerfile"], cwd=ROOT, check=True)


def test_the_default_target_is_the_cpu_image() -> None:
    assert list(STAGES)[-1] == ""
    assert STAGES[""] == [("FROM", "cpu")]


def test_the_stages_before_the_cpu_image_hold_no_torch_and_no_cuda() -> None:
    """Old podman runs every stage before the target, so large stages come after it."""
    before = list(STAGES)[: list(STAGES).index("cpu")]
    assert not [stage for stage in before if "cuda" in stage or "train" in stage]


def test_there_is_one_base_pinned_by_version_and_digest() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", image)
    sources = {stage[0][1].partition(" AS ")[0] for stage in STAGES.values()}
    assert sources - set(STAGES) == {"${PYTHON_IMAGE}"}


@each_image
def test_it_runs_as_a_numeric_user_that_is_not_root_and_cannot_change_it(target: str) -> None:
    """Kubernetes enforces `runAsNonRoot` only for a numeric user."""
    (user,) = arguments_of(lineage(target), "USER")
    assert all(int(part) > 0 for part in user.split(":"))
    names = [name for name, _ in lineage(target)]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


@each_image
def test_it_installs_nothing_by_itself(target: str) -> None:
    """It copies an environment: no package manager runs in it, so no compiler comes along."""
    assert arguments_of(lineage(target), "RUN") == []


@each_image
def test_the_program_is_process_one(target: str) -> None:
    """The exec form has no shell, which would swallow signals."""
    for instruction in ("ENTRYPOINT", "CMD"):
        (arguments,) = arguments_of(lineage(target), instruction)
        assert isinstance(json.loads(arguments), list)


@each_image
def test_it_uploads_no_usage_data(target: str) -> None:
    """ONNX Runtime uploads usage data unless this variable is set."""
    assert any("ORT_DISABLE_TELEMETRY=1" in variables for variables in arguments_of(lineage(target), "ENV"))


def locked(name: str) -> dict[str, str]:
    """Returns the version of each package in a list of hashes."""
    text = (ROOT / "deploy" / "locks" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==([^ ]+) \\\n +--hash=sha256:", text, re.MULTILINE))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_serving_image_installs_one_runtime_tracing_and_no_torch_by_hash(target: str) -> None:
    command = f"pip --python /opt/dragoman/bin/python install --requirement {target}.txt"
    assert arguments_of(STAGES[f"{target}-dependencies"], "RUN")[0].partition(" && ")[0].strip() == command
    (variables,) = arguments_of(STAGES["locked"], "ENV")
    assert "PIP_REQUIRE_HASHES=1" in variables
    packages = locked(target)
    assert sum(name.startswith("onnxruntime") for name in packages) == 1
    assert "opentelemetry-sdk" in packages
    assert not set(probe_constant("ABSENT_MODULES")) & {name.replace("-", "_") for name in packages}


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("cpu", ["cpu", "tracing", "postgresql", "pdf"]),
        ("cuda", ["cuda", "tracing", "postgresql", "pdf"]),
        ("build", []),
    ],
)
def test_locked_versions_are_those_of_the_constraints(name: str, extras: list[str]) -> None:
    """`make locks` writes the lists again."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    packages = locked(name)
    # The versions of CUDA follow from that of ONNX Runtime.
    own = {package: version for package, version in packages.items() if not package.startswith("nvidia-")}
    assert {package: constraints.get(package) for package in own} == own
    if extras:
        assert {re.split(r"[\[=<>]", requirement)[0].lower() for requirement in requirements(*extras)} <= set(packages)


def test_packages_of_images_have_permissive_licenses_by_their_metadata() -> None:
    """docs/supply_chain.md lists them; none is of the GPL, LGPL or AGPL. Only NVIDIA's come on top for a GPU."""
    permissive = (
        r"0BSD|Apache[- ]2\.0|(3-Clause )?BSD([ -][23]-Clause)?( License)?|CC0-1\.0|MIT(-0| License)?|PSF-2\.0|Zlib"
    )
    others = set[tuple[str, str]]()
    for package in locked("cpu"):
        found = metadata(package).json
        named = [item.rpartition(" :: ")[2] for item in found.get("classifier", ()) if "License ::" in item]
        text = str(found.get("license_expression") or found.get("license") or " AND ".join(named))
        others |= {(package, name) for name in re.split(" AND | OR ", text) if not re.fullmatch(permissive, name)}
    pdfium = ("pypdfium2", "BSD-3-Clause, Apache-2.0, dependency licenses")
    assert others == {("certifi", "MPL-2.0"), ("tqdm", "MPL-2.0"), pdfium}
    more = locked("cuda").keys() - locked("cpu").keys()
    assert {package for package in more if not package.startswith("nvidia-")} == {"onnxruntime-gpu"}


def probe_constant(name: str) -> tuple[str, ...]:
    """Returns a constant of the script that checks a running container."""
    tree = ast.parse((ROOT / "deploy" / "container_probe.py").read_text(encoding="utf-8"))
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    value: tuple[str, ...] = ast.literal_eval(assigned[name])
    return value


def test_what_the_image_leaves_out_exists_and_is_not_imported() -> None:
    (command,) = arguments_of(STAGES["cpu-dependencies"], "RUN")
    folders = re.findall(r"-path '\*/(\S+)'", command)
    site = Path(pytest.__file__).parent.parent
    assert [folder for folder in folders if not list(site.glob(folder.replace("numpy/*", "numpy/**")))] == []
    program = "import sys, dragoman.export.graphs.native.models, dragoman.serve.app, onnxruntime; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    left_out = [re.compile(folder.replace("/", r"\.").replace("*", ".*") + r"\b") for folder in folders]
    assert [module for module in modules if any(pattern.match(module) for pattern in left_out)] == []


@each_image
def test_only_the_image_that_trains_holds_the_text_of_the_included_model(target: str) -> None:
    (removal,) = arguments_of(STAGES["serving-code"], "RUN")
    assert removal == "rm -r /code/lib/python*/site-packages/dragoman/model/everyday"
    assert (ROOT / "dragoman/model/everyday").is_dir()
    (code,) = [copy for copy in arguments_of(lineage(target), "COPY") if " /code " in copy]
    assert code.startswith("--from=code " if target == "train" else "--from=serving-code ")


def test_requirements_are_those_of_the_project() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert requirements("cpu") == PROJECT["project"]["dependencies"] + extras["cpu"]
    assert requirements("cpu", "train", "export").count("torch") == 1


def test_every_installation_is_constrained_or_locked_and_leaves_no_cache() -> None:
    """The variables also apply to the build of the wheel, unlike an option."""
    (variables,) = arguments_of(STAGES["build"], "ENV")
    assert "PIP_CONSTRAINT=/source/constraints.txt" in variables
    assert "PIP_NO_CACHE_DIR=1" in variables
    installing = {name for name, stage in STAGES.items() for run in arguments_of(stage, "RUN") if " install " in run}
    assert installing == {"cpu-dependencies", "cuda-dependencies", "train-dependencies", "code", "wheel"}
    parents = {name: STAGES[name][0][1].partition(" AS ")[0] for name in installing - {"wheel"}}
    assert {name for name, parent in parents.items() if parent == "locked"} == {"cpu-dependencies", "cuda-dependencies"}
    assert parents["train-dependencies"] == parents["code"] == "build"
    for stage in ("wheel", "code"):
        assert all(" --no-deps " in run for run in arguments_of(STAGES[stage], "RUN"))
    assert " --require-hashes " in arguments_of(STAGES["wheel"], "RUN")[0]


def test_documented_containers_have_time_to_drain() -> None:
    """Docker ends a container after 10 s otherwise."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    commands = [line for page in pages for line in re.findall(r"docker run [^\n`]*", page.read_text(encoding="utf-8"))]
    serving = [command for command in commands if ":train" not in command]
    grace = [re.search(r"--stop-timeout (\d+)", command) for command in serving]
    assert serving
    assert [command for command, found in zip(serving, grace, strict=True) if found is None] == []
    fields = ServeSettings.model_fields
    needed_seconds = fields["lame_duck_seconds"].default + fields["drain_seconds"].default
    assert min(int(found[1]) for found in grace if found) > needed_seconds


def test_the_health_check_runs_a_module_of_the_image() -> None:
    (check,) = arguments_of(STAGES["serving"], "HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert command == ["python", "-m", "dragoman.serve.commands.health"]
    assert f'exec "$container" {" ".join(command)} ' in (ROOT / "deploy" / "container_test.sh").read_text()


def test_the_license_label_is_an_argument_with_the_terms_of_the_included_model_by_default() -> None:
    (label,) = arguments_of(STAGES["serving"], "LABEL")
    assert 'org.opencontainers.image.licenses="${LICENSES}"' in label
    licenses = [value for value in arguments_of(STAGES["serving"], "ARG") if value.startswith("LICENSES=")]
    included = Bundle.open(ROOT / "bundles" / "included").manifest.license
    assert licenses == [f'LICENSES="{included}"']


def test_the_terms_of_pulled_models_are_in_the_label_and_in_a_file() -> None:
    assert 'TERMS="${MODELS:+ AND LicenseRef-models}"' in arguments_of(STAGES["cpu"], "ARG")
    assert arguments_of(STAGES["cpu"], "LABEL") == ['org.opencontainers.image.licenses="${LICENSES}${TERMS}"']
    (run,) = arguments_of(STAGES["pulled"], "RUN")
    assert "> /pulled/LICENSES.txt" in run
    (label,) = arguments_of(STAGES["serving"], "LABEL")
    assert "/models/LICENSES.txt" in label
    assert "/models/*/README.md" in label


def test_no_stage_needs_another_shell_than_that_of_the_image() -> None:
    """Images in the format of OCI, the default of podman, have no instruction SHELL."""
    assert [name for name, stage in STAGES.items() if arguments_of(stage, "SHELL")] == []
    for stage in STAGES.values():
        for run in arguments_of(stage, "RUN"):
            subprocess.run(["/bin/sh", "-n", "-c", run], check=True)


def run_pull(folder: Path, models: str, program: str) -> tuple[int, dict[str, str]]:
    """Runs the command that pulls models in a folder; returns its status and the files of the pulled models.

    Args:
        folder: stands for / and /tmp.
        program: shell script that stands for `dragoman`.
    """
    (folder / "dragoman").write_text(f"#!/bin/sh\n{program}\n")
    (folder / "dragoman").chmod(0o755)
    (command,) = arguments_of(STAGES["pulled"], "RUN")
    command = command.replace("/tmp/", f"{folder}/").replace("/pulled", f"{folder}/pulled")  # noqa: S108 - of the image
    variables = {"MODELS": models, "PATH": f"{folder}:/usr/bin:/bin"}
    status = subprocess.run(["/bin/sh", "-c", command], env=variables, check=False).returncode
    return status, {path.name: path.read_text() for path in (folder / "pulled").iterdir()}


def test_models_are_pulled_by_the_shell_of_the_image(tmp_path: Path) -> None:
    program = 'echo "$4: license: mit"; echo other; echo "$@" > "$3/arguments"'
    status, files = run_pull(tmp_path, "en-de\nde-en", program)
    assert status == 0
    assert files == {"LICENSES.txt": "en-de: license: mit\n", "arguments": f"pull --to {tmp_path}/pulled en-de de-en\n"}


def test_the_list_of_an_image_has_pairs_of_languages_both_ways() -> None:
    pairs = [parse_name(name) for name in (ROOT / "deploy" / "europe.txt").read_text().split()]
    known = {(pair.source, pair.target) for pair in pairs if isinstance(pair, LanguagePair)}
    assert len(known) == len(pairs)
    assert {(target, source) for source, target in known} == known


def test_mirrors_are_arguments_of_the_build() -> None:
    names = {argument.partition("=")[0] for argument in arguments_of(STAGES["pulled"], "ARG")}
    assert names == {"MODELS", "HF_ENDPOINT", firefox.VARIABLE, argos.VARIABLE}


def test_without_models_nothing_is_pulled(tmp_path: Path) -> None:
    assert run_pull(tmp_path, "", "exit 3") == (0, {})


def test_a_failed_pull_ends_the_build(tmp_path: Path) -> None:
    assert run_pull(tmp_path, "en-de", "exit 3")[0] != 0


def test_no_copied_file_is_ignored_by_docker() -> None:
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in allowed
    copies = [copy for each in STAGES.values() for copy in arguments_of(each, "COPY") if not copy.startswith("--from")]
    sources = {source for copy in copies for source in copy.split()[:-1]} - {"${BUNDLES}/", "--chmod=755"}
    assert sources | {"bundles/"} <= {line.removeprefix("!") for line in allowed}


def test_every_package_of_the_project_is_in_the_images() -> None:
    """Bundles have a layer of their own and are not copied with the code."""
    links = {path.name for path in (ROOT / "dragoman").iterdir() if path.is_symlink()}
    copied = " ".join(arguments_of(STAGES["wheel"], "COPY"))
    for package in {"dragoman"} | links - {"bundles"}:
        assert f"{package}/ {package}/" in copied
