"""The one reader of the environment: every setting, checked, once, at start.

Precedence: `SLUICE_*` variables, then `endpoints.json` that `sluice up` leaves in the data folder, then the defaults.
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from infra.kafka.connection import KafkaConnection, Mechanism
from infra.models.metering import Budget, Price
from infra.models.pacing import ProviderLimit
from infra.models.routing import ModelName, ProviderEndpoint, TenantChoice
from topics.errors import ConfigError

ENDPOINTS_FILE: Final = "endpoints.json"

_BROKER: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"


def _like(pattern: str, wanted: str) -> AfterValidator:
    """Refuse a text of another form. The message says which form is wanted, and not what was given."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(wanted)
        return text

    return AfterValidator(cast("Callable[[Any], Any]", check))


Brokers = Annotated[str, _like(rf"{_BROKER}(?:,{_BROKER})*", "wants host:port, or several with commas between them")]
HttpUrl = Annotated[str, _like(r"https?://[^\s/]+(?:/\S*)?", "wants an http:// or https:// address")]
RedisUrl = Annotated[str, _like(r"(?:rediss?|unix)://\S+", "wants a redis://, rediss:// or unix:// address")]


class Settings(BaseSettings):
    """Everything that can be set. Names in the environment are `SLUICE_` and the field in capitals."""

    model_config = SettingsConfigDict(env_prefix="SLUICE_", extra="ignore", frozen=True, allow_inf_nan=False)

    data_dir: Path = Path(".sluice")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    kafka_bootstrap: Brokers = "localhost:9092"
    kafka_tls: bool = False
    kafka_ca_file: str | None = None
    kafka_cert_file: str | None = None
    kafka_key_file: str | None = None
    kafka_sasl_mechanism: Mechanism | None = None
    kafka_username: str | None = None
    kafka_password: SecretStr | None = None
    kafka_idempotent: bool = True
    topic_prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    group_prefix: str = Field(default="sluice", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    replication_factor: int = Field(default=1, ge=1, le=9)
    new_group_reads_from: Literal["earliest", "latest"] = "earliest"

    redis_url: RedisUrl = "redis://localhost:6379/0"
    redis_prefix: str = Field(default="sluice", pattern=r"^[a-z0-9-]{1,40}$")
    redis_connections: int = Field(default=64, ge=4, le=10_000)

    model_base_url: HttpUrl = "http://localhost:8000/v1"
    model_api_key: SecretStr = SecretStr("none")
    model_name: ModelName = "sluice-demo"
    model_timeout_s: float = Field(default=60.0, gt=0)
    model_concurrency: int = Field(default=256, ge=1, le=10_000)  # model calls at once in a process, whatever makes them
    providers: tuple[ProviderEndpoint, ...] = Field(default=(), description="in order; empty: the one of the three settings above")
    breaker_open_s: float = Field(
        default=5.0, gt=0
    )  # until the first trial of a provider that is out; later ones take up to six times it
    tenant_models: dict[str, TenantChoice] = Field(default_factory=dict, description="tenant -> its model, its providers")
    embedding_base_url: HttpUrl | None = None  # where it is not the model's; the same for its key
    embedding_api_key: SecretStr | None = None
    provider_limits: dict[str, ProviderLimit] = Field(default_factory=dict, description="provider, or *, -> what it allows")
    limit_processes: int = Field(default=4, ge=1, le=10_000)  # that share a limit; while Redis is out each keeps to its part
    tenant_budgets: dict[str, Budget] = Field(default_factory=dict, description="tenant, or * for each other, -> its day")
    model_prices: dict[str, Price] = Field(default_factory=dict, description="the provider's name of a model -> what it costs")
    embedding_model: str = "sluice-minilm"
    embedding_timeout_s: float = Field(default=10.0, gt=0)  # of a request; who waits gives up after 15, and then no failure is seen
    embedding_dimensions: int = Field(default=384, ge=2, le=8192)

    back_office_url: HttpUrl = "http://localhost:8001"
    toolset: str = "retail"
    toolsets: dict[str, str] = Field(default_factory=dict, description="tenant -> toolset, where it is not the default one")
    approver_key: Path | None = None  # a private key, for `sluice approvals` alone: no worker opens it
    policy_file: Path | None = None  # who must say yes to what (TOML); without one each tool's own word, and no decision counts

    http_port: int = Field(default=0, ge=0, le=65_535)  # of /livez, /readyz and /metrics; 0: nothing is served
    http_host: str = Field(default="127.0.0.1", min_length=1)  # 0.0.0.0 where a probe or Prometheus comes from elsewhere
    stall_s: float = Field(default=60.0, ge=1)  # for so long may work wait that could move, before the process is not alive

    otlp_endpoint: HttpUrl | None = None  # where spans go, by OTLP over HTTP, the path included; without one there is no tracing
    otlp_headers: SecretStr | None = None  # name=value, several with commas between them
    trace_ratio: float = Field(default=1.0, ge=0, le=1)  # of the traces that begin here; one that was begun keeps its own word
    trace_content: bool = False  # whether spans hold prompts, answers and arguments, redacted
    redactor: str = ""  # `package.module:function`, text to text: what a tenant's data needs beyond the patterns that are built in

    slots: int = Field(default=200, ge=1, le=10_000)
    ingestion_slots: int = Field(default=6, ge=1, le=10_000)  # a batch of tickets, or one article, each
    nice: int = Field(default=0, ge=0, le=19)  # of the process: by how much it gives way to others on its machine
    batch_size: int = Field(default=32, ge=1, le=1000)
    triage_concurrency: int = Field(default=8, ge=1, le=1000)
    max_buffered_records: int = Field(default=512, ge=1)  # as the next: of one partition
    max_buffered_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    max_failures: int = Field(default=8, ge=1, le=100)  # of one record, for reasons that may pass; then it is a dead letter
    handler_timeout_s: float = Field(default=300.0, gt=0)
    drain_s: float = Field(default=25.0, ge=0)
    revoke_drain_s: float = Field(default=20.0, ge=0)
    lease_s: float = Field(default=12.0, ge=1)
    min_similarity: float = Field(default=0.40, ge=0, le=1)
    passage_diversity: float = Field(default=0.0, ge=0, lt=1)  # how much a passage must differ from those before it
    delta_interval_s: float = Field(default=0.05, ge=0)
    link_hosts: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="tenant, or *, -> hosts answers may link to")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put what `sluice up` wrote below the environment."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _Endpoints(settings_cls, init_settings, env_settings)

    def kafka(self) -> KafkaConnection:
        """How to reach the cluster."""
        return KafkaConnection(
            bootstrap=self.kafka_bootstrap,
            tls=self.kafka_tls,
            ca_file=self.kafka_ca_file,
            cert_file=self.kafka_cert_file,
            key_file=self.kafka_key_file,
            mechanism=self.kafka_sasl_mechanism,
            username=self.kafka_username,
            password=self.kafka_password.get_secret_value() if self.kafka_password else None,
            idempotent=self.kafka_idempotent,
        )

    def model_providers(self) -> tuple[ProviderEndpoint, ...]:
        """The providers of chat models, in order."""
        alone = ProviderEndpoint(
            name="default", base_url=self.model_base_url, api_key=self.model_api_key, models={self.model_name: self.model_name}
        )
        return self.providers or (alone,)

    def toolset_of(self, tenant: str) -> str:
        """The name or dotted path of a tenant's toolset."""
        return self.toolsets.get(tenant, self.toolset)

    def link_hosts_of(self, tenant: str) -> tuple[str, ...]:
        """Hosts that a tenant's answers may link to, beside those of its articles."""
        return (*self.link_hosts.get("*", ()), *self.link_hosts.get(tenant, ()))


class _Endpoints(PydanticBaseSettingsSource):
    """Where the running embedded stack listens."""

    def __init__(self, settings_cls: type[BaseSettings], *stronger: PydanticBaseSettingsSource) -> None:
        super().__init__(settings_cls)
        self._stronger = stronger

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """Unused: values are read as a whole."""
        del field
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        named = (source().get("data_dir") for source in self._stronger)
        folder = Path(next((one for one in named if one), self.settings_cls.model_fields["data_dir"].default))
        file = folder / ENDPOINTS_FILE
        try:
            found: Any = json.loads(file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{file} cannot be read ({type(error).__name__}): remove it, `sluice up` writes it anew") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{file} is no JSON object: remove it, `sluice up` writes it anew")
        return cast("dict[str, Any]", found)


def read_inherited(names: Iterable[str]) -> dict[str, str]:
    """What the environment says to other people's libraries, as far as it says anything."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}  # noqa: TID251 -- the one reader


def load_settings(**overrides: Any) -> Settings:
    """Read the settings.

    Raises:
        ConfigError: One sentence for each setting that is wrong; values are not repeated.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise ConfigError(f"a setting is wrong: {'; '.join(map(_problem, error.errors()))}") from None
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        named = f"SLUICE_{field.group(1).upper()}" if field else "one of them"
        raise ConfigError(f"a setting is wrong: {named} wants JSON") from None


def _problem(error: Any) -> str:
    field, *inside = error["loc"]
    where = f" ({'.'.join(map(str, inside))})" if inside else ""
    return f"SLUICE_{field.upper()}{where}: {error['msg'].removeprefix('Value error, ')}"
