"""Every setting of the service and of each model, and the files that hold them.

A setting comes from a flag, else from an environment variable, else from a YAML or TOML file, else from its default.
Everything is read once, before the service starts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, FiniteFloat, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, CliPositionalArg, PydanticBaseSettingsSource, SettingsConfigDict

from dragoman.model.errors import UsageError, reason_of
from dragoman.serve.host.system import DeviceChoice, available_cpus
from dragoman.tables import described

if TYPE_CHECKING:
    from dragoman.serve.host.state import State
    from dragoman.serve.source import ModelSource


@described(__file__)
class ConnectionSettings(BaseModel):
    """Security and lifetime of client connections."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    api_keys: SecretStr | None = Field(None, min_length=1)
    api_keys_file: Path | None = None
    stored_api_keys: bool = False
    key_metrics: bool = False
    open_metrics: bool = True
    http_max_connections_per_address: int | None = Field(None, ge=1)
    grpc_keepalive_seconds: FiniteFloat = Field(60.0, gt=0)
    grpc_keepalive_timeout_seconds: FiniteFloat = Field(20.0, gt=0)
    grpc_max_connection_age_seconds: float = Field(300.0, gt=0)
    grpc_max_connection_age_grace_seconds: float = Field(360.0, gt=0)


# Waiting rows per slot: a few times the work in progress admits bursts and sheds overload early.
QUEUE_PER_SLOT = 4
# Next to the packages, in a checkout and in an installed wheel.
SHIPPED_BUNDLE = Path(__file__).resolve().parent.parent / "bundles" / "included"
# Enough that one stream keeps every slot busy while responses and further requests are in transit.
STREAM_PER_SLOT = 2


@described(__file__)
class ModelSettings(BaseModel):
    """Settings that a model may override."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(32, ge=1)
    device: DeviceChoice = "auto"
    device_memory_bytes: int | None = Field(None, ge=1)
    mode: Literal["throughput", "latency"] = "throughput"
    engines: int | None = Field(None, ge=1)
    threads_per_engine: int | None = Field(None, ge=1)
    queue_limit: int | None = Field(
        None,
        ge=0,
        description=f"Rows that may wait; further requests are rejected (default: {QUEUE_PER_SLOT} per slot)",
    )
    queue_timeout_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    prefill_token_budget: int = Field(128, ge=1)
    running_token_budget: int | None = Field(None, ge=1)
    alignments: bool | None = None
    shortlist: bool | None = None
    max_texts: int = Field(64, ge=1)
    max_text_characters: int = Field(10_000, ge=1)
    pinned: bool = False


@described(__file__)
class StateSettings(BaseModel):
    """Settings of what outlives a process."""

    state_dir: Path | None = None
    state_url: SecretStr | None = Field(None, min_length=1)

    def open_state(self, **options: int) -> "State | None":
        """Returns the database, opened with `options`; None: nothing outlives the process. Raises StateError."""
        from dragoman.serve.host.state import State, StateError  # noqa: PLC0415 - SQLAlchemy is slow and takes 14 MB

        if self.state_dir is None:
            if self.state_url is not None:
                raise StateError("--state-url: expected --state-dir too, for files")
            return None
        return State(self.state_dir, self.state_url.get_secret_value() if self.state_url else None, **options)


# This value in place of a path switches an interface off.
OFF = "off"
PATH = r"^(/[A-Za-z0-9_/.-]*|off)$"
_OWN_PREFIX = "/v1"


@described(__file__)
class ServeSettings(StateSettings, ConnectionSettings, ModelSettings, BaseSettings):
    """Settings of the service: models, addresses, limits, lifecycle, logs."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = SHIPPED_BUNDLE
    config: Path | None = None
    host: str = "0.0.0.0"  # noqa: S104 - a service in a container must be reachable from outside
    http_port: int = Field(8000, ge=0, le=65535)
    grpc_port: int = Field(8001, ge=0, le=65535)
    processes: Annotated[int, Field(ge=1)] | Literal["auto"] = 1
    models: dict[str, ModelSettings] = Field({})
    admin_key: SecretStr | None = Field(None, min_length=1)
    admin_key_file: Path | None = None
    cors_origins: tuple[str, ...] = ()
    libretranslate_path: str = Field("/", pattern=PATH)
    libretranslate_alternatives: int = Field(5, ge=0, le=100)
    memory: str | None = Field(None, min_length=1)
    corrections: bool = False
    public_url: str | None = Field(None, pattern=r"^https?://[!-~]+$")
    deepl_path: str = Field("/", pattern=PATH)
    google_path: str = Field(OFF, pattern=PATH)
    microsoft_path: str = Field(OFF, pattern=PATH)
    compatible_placeholders: bool = True
    page: bool = True
    max_body_bytes: int = Field(2 << 20, ge=1)
    stream_unanswered_texts: int | None = Field(
        None,
        ge=1,
        description=f"Unanswered texts that pause a TranslateMany stream (default: {STREAM_PER_SLOT} per slot)",
    )
    result_cache_bytes: int | None = Field(None, ge=1)
    request_timeout_seconds: FiniteFloat = Field(30.0, gt=0)
    step_timeout_seconds: FiniteFloat = Field(60.0, gt=0)
    load_timeout_seconds: FiniteFloat = Field(300.0, gt=0)
    model_idle_seconds: FiniteFloat | None = Field(None, gt=0)
    memory_limit: ByteSize | None = Field(None, ge=1, json_schema_extra={"placeholder": "SIZE"})
    on_demand: str | None = Field(None, json_schema_extra={"without_value": "all", "placeholder": "LIST"})
    on_demand_from: Literal["local", "nobody", "anyone"] = "local"
    on_demand_max_bytes: ByteSize = Field(ByteSize(10_000_000_000), ge=0)
    on_demand_downloads: int = Field(2, ge=1)
    lame_duck_seconds: FiniteFloat = Field(5.0, ge=0)
    drain_seconds: FiniteFloat = Field(30.0, ge=0)
    document_max_bytes: int = Field(10 << 20, ge=1)
    document_max_unpacked_bytes: int = Field(64 << 20, ge=1)
    documents_max_count: int = Field(1000, ge=1)
    documents_max_bytes: int = Field(1 << 30, ge=1)
    documents_keep_seconds: FiniteFloat = Field(86_400.0, gt=0)
    callback_hosts: tuple[str, ...] = Field((), json_schema_extra={"placeholder": "HOST"})
    callback_secret_file: Path | None = None
    log_format: Literal["json", "console"] = "json"
    log_texts: bool = False
    trace_endpoint: str | None = Field(None, min_length=1)
    trace_sample_ratio: float = Field(0.001, ge=0, le=1)

    @field_validator("processes", mode="wrap")
    @classmethod
    def _check_processes(cls, value: object, check: Callable[[object], object]) -> object:
        """Refuses with one message, where the two types of the field have one each."""
        try:
            return check(value)
        except ValueError as error:
            raise ValueError("expected a number of at least 1, or auto") from error

    @field_validator("libretranslate_path", "microsoft_path")
    @classmethod
    def _check_prefix(cls, path: str, info: ValidationInfo) -> str:
        """Refuses a prefix whose routes would hide some of another interface."""
        taken = {_OWN_PREFIX: _OWN_PREFIX}
        if info.field_name == "microsoft_path" and path != OFF:
            taken[info.data.get("libretranslate_path", OFF).rstrip("/")] = "--libretranslate-path"
            taken[f"{info.data.get('deepl_path', OFF).rstrip('/')}/v2"] = "/v2 of --deepl-path"
        if (other := taken.get(path.rstrip("/"))) is not None:
            raise ValueError(f"expected another path than {other}, whose routes it would hide")
        return path

    @property
    def process_count(self) -> int:
        """Number of processes that serve."""
        return available_cpus() if self.processes == "auto" else self.processes

    @property
    def engine_count(self) -> int:
        """Number of engines."""
        if self.engines is not None:
            return self.engines
        return 1 if self.mode == "latency" else max(1, available_cpus() // self.engine_threads)

    @property
    def engine_threads(self) -> int:
        """ONNX Runtime threads per engine."""
        if self.threads_per_engine is not None:
            return self.threads_per_engine
        return max(1, available_cpus() // (self.engines or 1)) if self.mode == "latency" else 1

    @property
    def total_slots(self) -> int:
        """Slots of all engines."""
        return self.slots * self.engine_count

    @property
    def max_waiting(self) -> int:
        """Rows that may wait."""
        return QUEUE_PER_SLOT * self.total_slots if self.queue_limit is None else self.queue_limit

    @property
    def max_stream_texts(self) -> int:
        """Unanswered texts at which the service stops reading a stream."""
        if self.stream_unanswered_texts is not None:
            return self.stream_unanswered_texts
        return STREAM_PER_SLOT * self.total_slots

    def of_model(self, name: str) -> Self:
        """Returns the settings with the overrides of one model."""
        own = self.models.get(name)
        return self if own is None else self.model_copy(update=own.model_dump(exclude_unset=True))

    def model_source(self) -> "ModelSource | None":
        """Returns what fetches models on demand; None: no model is fetched."""
        return None

    def read_admin_key(self) -> str | None:
        """Returns the admin key, from the setting or from its file; None if neither is set.

        Raises SystemExit if both are set, or the file cannot be read or is empty.
        """
        if self.admin_key_file is None:
            return None if self.admin_key is None else self.admin_key.get_secret_value()
        option = f"dragoman serve: --admin-key-file: {self.admin_key_file}"
        if self.admin_key is not None:
            raise SystemExit(f"{option}: expected either --admin-key or --admin-key-file, got both")
        try:
            key = self.admin_key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SystemExit(f"{option}: {reason_of(error)}") from error
        if not key:
            raise SystemExit(f"{option}: expected the admin key, got an empty file")
        return key

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the sources, highest precedence first; flags precede all of them."""
        return sources["init_settings"], sources["env_settings"], ConfigFileSource(settings_cls)


class ConfigFileSource(PydanticBaseSettingsSource):
    """The configuration file, if a source of higher precedence names one."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Returns nothing: `__call__` reads the whole file."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Reads the file; raises UsageError if the file cannot be read, is not a mapping or has an unknown name."""
        path = self.current_state.get("config")
        if path is None:
            return {}
        from dragoman.serve.host.config_file import ConfigFile, ConfigFileError  # noqa: PLC0415 - parsers of YAML, TOML

        try:
            file = ConfigFile.read(Path(path))
            file.check_names(ServeSettings.model_fields.keys() - {"config"})
            own = file.content.get("models")
            for name in own if isinstance(own, dict) else ():
                file.check_names(ModelSettings.model_fields, ("models", name))
        except ConfigFileError as error:
            raise UsageError(f"config: {error}") from error
        return file.content
