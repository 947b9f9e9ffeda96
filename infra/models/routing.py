"""Which providers may answer a call, in which order. Pure; the shapes are those of the settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from topics.errors import ConfigError, RejectedError

# A provider's name becomes a label of metrics and a part of keys.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^\S{1,200}$")]

UNKNOWN_MODEL: Final = "unknown_model"


class ProviderEndpoint(BaseModel):
    """An endpoint that speaks OpenAI's API. `models`: our name of a model -> the provider's name for one that may stand for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    base_url: str = Field(pattern=r"^https?://[^\s/]+(?:/\S*)?$")
    api_key: SecretStr = SecretStr("none")
    models: dict[ModelName, ModelName] = Field(min_length=1)
    timeout_s: float | None = Field(default=None, gt=0)
    max_output_tokens: int | None = Field(default=None, ge=1)


class TenantChoice(BaseModel):
    """A tenant's own model, and the only providers it may use, in its order; what is left out is as for everybody."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelName | None = None
    providers: tuple[Name, ...] | None = Field(default=None, min_length=1)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A provider, and its own name for the model."""

    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class ModelRoutes:
    """Who may answer: the providers in order, a model for everybody, and what single tenants chose.

    Args:
        providers: Provider -> our name of a model -> its own, in the order in which they are asked.

    Raises:
        ConfigError: A choice that nobody can serve. One sentence names it.
    """

    providers: Mapping[str, Mapping[str, str]]
    model: str
    tenants: Mapping[str, TenantChoice]

    def __post_init__(self) -> None:
        """Check every choice now, rather than at a tenant's first call."""
        for whose, choice in (("everybody", TenantChoice()), *self.tenants.items()):
            unknown = set(choice.providers or ()) - set(self.providers)
            if unknown:
                raise ConfigError(f"SLUICE_TENANT_MODELS ({whose}): no provider {', '.join(sorted(unknown))}")
            model = choice.model or self.model
            if not self._serving(choice, model):
                raise ConfigError(f"no provider serves the model {model}, which is meant for {whose}")

    def candidates(self, tenant: str, model: str | None = None) -> Sequence[Candidate]:
        """The providers of one call, best first; at least one.

        Args:
            model: What the call itself asks for, by our name.

        Raises:
            RejectedError: None that the tenant may use serves that model (`unknown_model`).
        """
        choice = self.tenants.get(tenant, TenantChoice())
        found = self._serving(choice, model or choice.model or self.model)
        if not found:
            raise RejectedError("no provider of this tenant serves the model that was asked for", code=UNKNOWN_MODEL)
        return found

    def _serving(self, choice: TenantChoice, model: str) -> list[Candidate]:
        order = choice.providers or tuple(self.providers)
        return [Candidate(name, self.providers[name][model]) for name in order if model in self.providers[name]]


def routes_of(endpoints: Sequence[ProviderEndpoint], *, model: str, tenants: Mapping[str, TenantChoice]) -> ModelRoutes:
    """The routes over these endpoints, in their order.

    Raises:
        ConfigError: Two have one name, or a choice cannot be served.
    """
    if len({one.name for one in endpoints}) < len(endpoints):
        raise ConfigError("SLUICE_PROVIDERS: two providers have one name")
    return ModelRoutes({one.name: one.models for one in endpoints}, model, tenants)
