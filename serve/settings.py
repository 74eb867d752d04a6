"""Every setting of the service and of each model.

A setting comes from a flag, else from an environment variable, else from a file, else from its default. All are read
once, before anything starts.

The settings of connections: how long they last, who may open one, and how they are encrypted.

A part of `serve.settings`; read by `serve.app` alone.

The file with settings, in YAML or TOML: read, checked for names that there are not, and written again.

A fault names the file and, where it can be told, the line. What values may be, `serve.settings` knows.

The `--help` of a command with many options: in groups, with defaults and environment variables.

The library behind commands groups nested records only, and those of a command are flat so that flags are short. Used by
`serve.command`.
"""

import re
import tomllib
from argparse import ArgumentParser
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import (
    BaseSettings,
    CliPositionalArg,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from serve.runtime.device_choice import DeviceChoice
from serve.system import available_cpus


class ConnectionSettings(BaseModel):
    """What is asked of connections, and of those who open them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tls_certificate_file: Path | None = Field(
        None,
        description="PEM file with the server's certificate and those between it and its root. With it, both ports "
        "speak TLS only. Read again when it changes. Default: no TLS.",
    )
    tls_key_file: Path | None = Field(None, description="PEM file with the key of the certificate, not encrypted.")
    tls_client_ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities whose clients are let in, by the certificates that they show "
        "(mutual TLS). Probes over REST need none. Default: clients need no certificate.",
    )
    api_keys: SecretStr | None = Field(
        None,
        min_length=1,
        description="Keys of clients, separated by white space; who has none gets no translation. Best in the "
        "environment (DRAGOMAN_API_KEYS) or in a file. Default: nobody needs a key.",
    )
    api_keys_file: Path | None = Field(
        None, description="File with one key a line; lines that begin with # say nothing. Read again when it changes."
    )
    open_metrics: bool = Field(True, description="Whether /metrics may be read without a key or a certificate.")
    grpc_keepalive_seconds: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="A gRPC connection on which nothing came for so long is pinged."
    )
    grpc_keepalive_timeout_seconds: float = Field(
        20.0, gt=0, allow_inf_nan=False, description="A connection that does not answer a ping for so long is closed."
    )
    grpc_min_ping_interval_seconds: float = Field(
        10.0,
        ge=0,
        allow_inf_nan=False,
        description="Clients that ping more often than that, again and again, are sent away.",
    )
    grpc_max_connection_age_seconds: float = Field(
        300.0,
        gt=0,
        description="After about so long, a gRPC connection takes no further calls: its client opens another one, and "
        "finds new replicas by that. A stream of requests is read for so long. inf: never, and for ever.",
    )
    grpc_max_connection_age_grace_seconds: float = Field(
        360.0,
        gt=0,
        description="How long the calls of such a connection may still take: longer than a stream of requests is read, "
        "and than any deadline of clients besides.",
    )
    grpc_max_calls: int | None = Field(
        None, ge=1, description="Calls at once on one gRPC connection; further ones wait in the client. Default: any."
    )


TOML_SUFFIX = ".toml"
# A part of a TOML name; quoted ones, which no setting needs, are found without their line.
_TABLE = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")

Place = tuple[str, ...]


class ConfigFileError(Exception):
    """The file cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file holds.

    Attributes:
        path: where it is.
        content: its settings by name.
        lines: the line of each name, counted from 1, as far as it is known; names inside of others as their path.
    """

    path: Path
    content: dict[str, Any]
    lines: Mapping[Place, int]

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Reads a file: TOML if its name says so, else YAML.

        Raises:
            ConfigFileError: if it cannot be read or holds no settings.
        """
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == TOML_SUFFIX:
                content, lines = tomllib.loads(text), dict(_toml_lines(text))
            else:
                content, lines = yaml.safe_load(text), dict(_yaml_lines(yaml.compose(text, yaml.SafeLoader)))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, tomllib.TOMLDecodeError) as error:
            raise ConfigFileError(f"{path}: {error}") from error
        if not isinstance(content, dict):
            raise ConfigFileError(f"{path}: expected settings, one `name: value` on each line")
        return cls(path, content, lines)

    def check_names(self, names: Collection[str], place: Place = ()) -> None:
        """Checks that there are settings of all names that stand at a place.

        Args:
            names: of the settings.
            place: the names that lead there.

        Raises:
            ConfigFileError: naming the first that there is not, and one like it.
        """
        content: Any = self.content
        for name in place:
            content = content.get(name)
        for name in content if isinstance(content, dict) else ():
            if name not in names:
                at = (*place, str(name))
                line = f":{self.lines[at]}" if at in self.lines else ""
                close = get_close_matches(str(name), names, 1)
                hint = f", did you mean {close[0]}?" if close else ""
                raise ConfigFileError(f"{self.path}{line}: {'.'.join(at)}: there is no such setting{hint}")


def write_config(settings: BaseModel, *, exclude: Collection[str]) -> str:
    """Returns settings in YAML as they can be read again, but for secrets, which are only told of.

    Args:
        settings: what to write.
        exclude: names that are left out.
    """
    secrets = [name for name, value in settings if isinstance(value, SecretStr)]
    content = {
        name: {key: each.model_dump(mode="json", exclude_unset=True) for key, each in value.items()}
        if isinstance(value, dict)
        else settings.model_dump(mode="json", include={name})[name]
        for name, value in settings
        if name not in exclude and name not in secrets
    }
    hidden = "".join(f"# {name}: it is set, and not shown\n" for name in secrets)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True) + hidden


def _yaml_lines(node: yaml.Node | None, place: Place = ()) -> Iterator[tuple[Place, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*place, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _yaml_lines(value, here)


def _toml_lines(text: str) -> Iterator[tuple[Place, int]]:
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE.match(line):
            table = tuple(found[1].split("."))
            yield table, number
        elif found := _KEY.match(line):
            yield (*table, *found[1].split(".")), number


# What the library says of an option that is absent by default; what that means, its description tells.
_NO_DEFAULT = " (default: None)"


def group_options(parser: ArgumentParser, settings: type[BaseSettings], groups: Mapping[str, str]) -> None:
    """Puts the options of a parser into groups.

    Args:
        parser: has one option for each setting.
        settings: the settings in their order.
        groups: the title of the group that begins with a setting; the first setting begins one.
    """
    prefix = settings.model_config.get("env_prefix", "")
    actions = {action.dest: action for action in parser._actions}  # noqa: SLF001 - there is no other way to them
    title = ""
    members: dict[str, list[str]] = {}
    for name in settings.model_fields:
        title = groups.get(name, title)
        members.setdefault(title, []).append(name)
    for title, names in members.items():
        group = parser.add_argument_group(title)
        for name in names:
            action = actions[name]
            action.help = f"{(action.help or '').replace(_NO_DEFAULT, '')} [{prefix}{name.upper()}]"
            if not action.option_strings:
                continue  # positional arguments have a group of their own
            parser._optionals._group_actions.remove(action)  # noqa: SLF001
            group._group_actions.append(action)  # noqa: SLF001


# Waiting rows for each slot: a few times the work in progress, so that bursts pass and overload is refused early.
QUEUE_PER_SLOT = 4
# Beside the packages, in a checkout as in an installed wheel.
SHIPPED_BUNDLE = Path(__file__).parent.parent / "bundles" / "multi30k"
# Enough that one stream keeps every slot busy while answers and further requests are on their way.
STREAM_PER_SLOT = 2


class ModelSettings(BaseModel):
    """The settings that each model may have of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(
        32,
        ge=1,
        description="Rows that one engine computes together; a sequence takes one for each hypothesis that is searched "
        "at once. More slots raise throughput, each step's time and memory: every slot holds keys and values for the "
        "longest source and target.",
    )
    device: DeviceChoice = Field(
        "auto",
        description="Where the model is computed. cuda: on NVIDIA GPUs, with an engine for each; the bundle must be "
        "exported with --variant cuda. cpu: on the CPUs, with any other variant. auto: as the variant says.",
    )
    device_memory_bytes: int | None = Field(
        None,
        ge=1,
        description="cuda: the most memory that the model may take of each GPU; there are fewer slots if they do not "
        "fit. With several models on a GPU, give each its part. Default: what is free.",
    )
    mode: Literal["throughput", "latency"] = Field(
        "throughput",
        description="What the CPUs that this process may use are for. throughput: an engine for each, with one thread. "
        "latency: one engine, with a thread for each, so that a large model answers a lone request sooner. The answers "
        "are the same. Sets the defaults of engines and threads-per-engine.",
    )
    engines: int | None = Field(
        None,
        ge=1,
        description="Engines, each with its own thread and slots, sharing the queue and the weights. "
        "Default: as the mode says.",
    )
    threads_per_engine: int | None = Field(
        None,
        ge=1,
        description="ONNX Runtime threads of each engine; engines times threads should not exceed the CPUs. "
        "Default: as the mode says.",
    )
    queue_limit: int | None = Field(
        None,
        ge=0,
        description="Rows that may wait while every slot is taken; beyond that, requests are refused at once. "
        f"Default: {QUEUE_PER_SLOT} for each slot.",
    )
    queue_timeout_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="How long a request may wait until it starts; after that, or if the queue moves so slowly that it "
        "would, it is refused. Requests of a TranslateMany stream wait as long as their deadlines let them, as all do "
        "by default.",
    )
    prefill_token_budget: int = Field(
        128,
        ge=1,
        description="Source tokens that join one engine between two steps. More start sooner when many wait, but "
        "running sequences stand still meanwhile.",
    )
    running_token_budget: int | None = Field(
        None,
        ge=1,
        description="Tokens that run together in all engines, counted as rows times source and longest target, which "
        "bounds a step's time when texts are long. Default: no bound but the slots.",
    )
    alignments: bool = Field(
        False,
        description="Compute where the alignment heads of the bundle look, at every step of every request: needed for "
        "the search options alignments and coverage_penalty. The bundle must be exported with --align.",
    )
    max_texts: int = Field(64, ge=1, description="Texts in one request; never more than slots and queue hold together.")
    max_text_characters: int = Field(10_000, ge=1, description="Unicode characters of one text.")


class ServeSettings(ConnectionSettings, ModelSettings, BaseSettings):
    """How the service runs: which models, where it listens, how it starts and stops."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(
        SHIPPED_BUNDLE,
        description="Folder made by `dragoman export`, or a folder of such folders, named as the models are. "
        "Default: the one that travels with Dragoman, between English, German, French and Czech.",
    )
    config: Path | None = Field(
        None, description="YAML or TOML (.toml) file with any of these settings; flags and environment win."
    )
    host: str = Field(
        "0.0.0.0",  # noqa: S104 - a service in a container is reached from outside it
        description="Address to listen on; 127.0.0.1 serves this machine only.",
    )
    http_port: int = Field(8000, ge=0, le=65535, description="Port for REST, probes and metrics; 0: any free one.")
    grpc_port: int = Field(8001, ge=0, le=65535, description="Port for gRPC; 0: any free one.")
    models: dict[str, ModelSettings] = Field(
        {},
        description="What models have of their own, by name, best in the file: any of the settings from slots to "
        "max-text-characters.",
    )
    admin_key: SecretStr | None = Field(
        None,
        min_length=1,
        description="Who knows it may reload the models over REST. Better in the environment (DRAGOMAN_ADMIN_KEY) or "
        "in a file than in a flag, which other users of the machine can see. Default: nobody may.",
    )
    admin_key_file: Path | None = Field(None, description="File that holds the admin key.")
    cors_origins: tuple[str, ...] = Field(
        (),
        description="Origins, as in https://example.org, whose pages may ask over REST from a browser; * is any. "
        "In the environment a JSON list. Default: none.",
    )
    max_body_bytes: int = Field(
        2 << 20, ge=1, description="Largest request body or message that is read, also when it is unpacked."
    )
    stream_unanswered_texts: int | None = Field(
        None,
        ge=1,
        description="A stream of requests (TranslateMany) is read on only while fewer of its texts are unanswered, "
        f"which also bounds the memory that it takes. Default: {STREAM_PER_SLOT} for each slot.",
    )
    result_cache_bytes: int | None = Field(
        None,
        ge=1,
        description="Memory for answers that are given again to the same text with the same options, bit for bit; the "
        "one that was asked for least recently goes first. Default: none is kept.",
    )
    request_timeout_seconds: float = Field(
        30.0, gt=0, allow_inf_nan=False, description="Deadline of a request whose client sets none."
    )
    step_timeout_seconds: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="A step of an engine that takes longer hangs: the server is then neither ready nor live, so that "
        "whoever watches over the process starts another.",
    )
    lame_duck_seconds: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="After a signal to stop: how long to go on serving while readiness says no, so that load "
        "balancers look elsewhere before connections are refused.",
    )
    drain_seconds: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        description="After that: how long accepted requests may still take. Whatever kills the process in the end must "
        "wait longer than both together.",
    )
    log_format: Literal["json", "console"] = Field("json", description="Logs for machines or for people, on stderr.")
    log_texts: bool = Field(
        False, description="Log the texts of requests and their translations, which may be nobody else's business."
    )
    trace_endpoint: str | None = Field(
        None,
        min_length=1,
        description="Collector of OpenTelemetry that spans of requests are sent to, with OTLP over gRPC, as in "
        "http://collector:4317. Needs the extra `tracing`. Default: there are no traces.",
    )
    trace_sample_ratio: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Share of the requests that are traced; for those with a traceparent, their client decides.",
    )

    @property
    def cpus(self) -> int:
        """CPUs that the engines share."""
        return available_cpus()

    @property
    def engine_count(self) -> int:
        """Engines that are started."""
        if self.engines is not None:
            return self.engines
        return 1 if self.mode == "latency" else max(1, self.cpus // self.engine_threads)

    @property
    def engine_threads(self) -> int:
        """ONNX Runtime threads of each engine."""
        if self.threads_per_engine is not None:
            return self.threads_per_engine
        return max(1, self.cpus // (self.engines or 1)) if self.mode == "latency" else 1

    @property
    def total_slots(self) -> int:
        """Slots of all engines together."""
        return self.slots * self.engine_count

    @property
    def max_waiting(self) -> int:
        """Rows that may wait."""
        return QUEUE_PER_SLOT * self.total_slots if self.queue_limit is None else self.queue_limit

    @property
    def max_stream_texts(self) -> int:
        """Unanswered texts of one stream at which reading stops."""
        if self.stream_unanswered_texts is not None:
            return self.stream_unanswered_texts
        return STREAM_PER_SLOT * self.total_slots

    def of_model(self, name: str) -> Self:
        """Returns the settings with what the model has of its own."""
        own = self.models.get(name)
        return self if own is None else self.model_copy(update=own.model_dump(exclude_unset=True))

    def read_admin_key(self) -> str | None:
        """Returns the admin key, wherever it stands; None: there is none.

        Raises:
            SystemExit: if it is given twice, or its file cannot be read or is empty.
        """
        if self.admin_key_file is None:
            return None if self.admin_key is None else self.admin_key.get_secret_value()
        place = f"dragoman serve: --admin-key-file: {self.admin_key_file}"
        if self.admin_key is not None:
            raise SystemExit(f"{place}: expected no file beside --admin-key")
        try:
            key = self.admin_key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SystemExit(f"{place}: {error}") from error
        if not key:
            raise SystemExit(f"{place}: empty, expected the admin key")
        return key

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is the library's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ranks the sources, the highest first; flags are above all of them."""
        return init_settings, env_settings, ConfigFileSource(settings_cls)


class ConfigFileSource(PydanticBaseSettingsSource):
    """The file that a higher source named, if any."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Is never asked: the file is read whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Reads the file.

        Raises:
            SystemExit: if it cannot be read, is no mapping or has a name that is no setting's.
        """
        path = self.current_state.get("config")
        if path is None:
            return {}
        try:
            file = ConfigFile.read(Path(path))
            file.check_names(ServeSettings.model_fields.keys() - {"config"})
            own = file.content.get("models")
            for name in own if isinstance(own, dict) else ():
                file.check_names(ModelSettings.model_fields, ("models", name))
        except ConfigFileError as error:
            raise SystemExit(f"dragoman serve: config: {error}") from error
        return file.content
