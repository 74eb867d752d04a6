"""Every setting of the service and of each model.

A setting comes from a flag, else from an environment variable, else from a file, else from its default. All are read
once, before anything starts.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import (
    BaseSettings,
    CliPositionalArg,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from serve.config_file import ConfigFile, ConfigFileError
from serve.connection_settings import ConnectionSettings
from serve.runtime.device_choice import DeviceChoice
from serve.system import available_cpus

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
