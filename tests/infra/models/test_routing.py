"""Who may answer a tenant's call."""

import pytest
from pydantic import SecretStr, ValidationError

from infra.models.routing import Candidate, ModelRoutes, ProviderEndpoint, TenantChoice, routes_of
from topics.errors import ConfigError, RejectedError

A = ProviderEndpoint(name="a", base_url="http://a.example/v1", models={"standard": "a-small", "large": "a-big"})
B = ProviderEndpoint(name="b", base_url="http://b.example/v1", models={"standard": "b-one"})


def routes(**tenants: TenantChoice) -> ModelRoutes:
    return routes_of([A, B], model="standard", tenants=tenants)


def test_everybody_gets_the_providers_in_order_each_with_its_own_name_of_the_model() -> None:
    assert routes().candidates("acme") == [Candidate("a", "a-small"), Candidate("b", "b-one")]


def test_a_tenant_has_the_model_and_the_providers_of_its_own_choice() -> None:
    chosen = routes(acme=TenantChoice(model="large"), globex=TenantChoice(providers=("b",)), ini=TenantChoice(providers=("b", "a")))
    assert chosen.candidates("acme") == [Candidate("a", "a-big")]
    assert chosen.candidates("globex") == [Candidate("b", "b-one")]
    assert chosen.candidates("ini") == [Candidate("b", "b-one"), Candidate("a", "a-small")]
    assert chosen.candidates("other") == routes().candidates("other")


def test_a_call_may_choose_a_model_and_never_leaves_its_tenants_providers() -> None:
    chosen = routes(globex=TenantChoice(providers=("b",)))
    assert chosen.candidates("acme", "large") == [Candidate("a", "a-big")]
    with pytest.raises(RejectedError) as caught:
        chosen.candidates("globex", "large")
    assert caught.value.reason_code == "unknown_model"


@pytest.mark.parametrize(
    ("model", "tenants", "wrong"),
    [
        ("huge", {}, "no provider serves the model huge"),
        ("standard", {"acme": TenantChoice(model="huge")}, "huge, which is meant for acme"),
        ("standard", {"acme": TenantChoice(providers=("c",))}, "acme.*no provider c"),
        ("standard", {"acme": TenantChoice(model="large", providers=("b",))}, "large, which is meant for acme"),
    ],
)
def test_a_choice_that_nobody_can_serve_stops_the_start(model: str, tenants: dict[str, TenantChoice], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        routes_of([A, B], model=model, tenants=tenants)


def test_two_providers_of_one_name_stop_the_start() -> None:
    with pytest.raises(ConfigError, match="one name"):
        routes_of([A, A], model="standard", tenants={})


def test_a_key_is_shown_nowhere() -> None:
    endpoint = ProviderEndpoint(name="a", base_url="http://a/v1", api_key=SecretStr("sk-1"), models={"m": "m"})
    assert "sk-1" not in f"{endpoint!r} {endpoint.model_dump_json()}"
    with pytest.raises(ValidationError):
        ProviderEndpoint(name="a b", base_url="http://a/v1", models={"m": "m"})
