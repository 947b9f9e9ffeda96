"""The policy as workers start with it: read, held against tools and keys, refused whole when a part is wrong."""

import json
from pathlib import Path

import pytest

from infra.identity.signatures import TenantTrust
from infra.settings import Settings, load_settings
from topics.errors import ConfigError
from topics.events import Terms
from workers.cli.doctor import CHECKS
from workers.demo.people import UNSIGNED
from workers.policy import load_policy
from workers.toolsets import load_toolset

EXAMPLE = Path("infra/local/data/policy.toml")


def settings(path: Path | None, **more: object) -> Settings:
    return load_settings(policy_file=path, **more)


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_the_example_for_the_shop_has_no_fault_and_its_tiers_do_what_they_say():
    loaded = load_policy(settings(EXAMPLE))
    tools = load_toolset("retail").by_name
    returned = {"order_id": "#W1", "payment_method_id": "credit_card_1"}

    def terms(tool: str, **arguments: object) -> Terms | None:
        said = loaded.policy.verdict_on(tools[tool], {**returned, **arguments}, tenant="shop-1", requester="u")
        return getattr(said, "terms", None)

    few, many = terms("return_delivered_order_items", item_ids=["1"]), terms("return_delivered_order_items", item_ids=["1"] * 3)
    assert few is not None
    assert many is not None
    assert (few.quorum, many.quorum, [one.people for one in many.escalations]) == (1, 2, [("zoe",)])
    assert terms("return_delivered_order_items", item_ids=["1"] * 21) is None
    address = terms("modify_pending_order_address")
    assert address is not None
    assert address.on_new_message == "revise"


async def test_without_a_file_tools_decide_nobody_is_believed_and_somebody_is_told():
    loaded = load_policy(settings(None))
    assert loaded.policy.version_of("acme") == "1"
    assert loaded.trust("acme") == TenantTrust(keys_file=None, unsigned=False)
    assert "every decision is refused" in loaded.warnings[0]
    assert "every decision is refused" in await CHECKS["policy"](settings(None))


def test_stories_and_benches_say_so_where_unsigned_words_count():
    loaded = load_policy(settings(UNSIGNED))
    assert loaded.trust("any tenant").unsigned
    assert loaded.warnings == ("decisions count without a signature for: *",)
    bare = load_policy(settings(None))
    for tool in load_toolset("retail").tools:
        verdicts = [one.policy.verdict_on(tool, {}, tenant="any tenant", requester="u") for one in (loaded, bare)]
        assert verdicts[0] == verdicts[1], "each tool's own rule decides"


def test_a_file_without_keys_must_say_that_nobody_signs(tmp_path: Path):
    with pytest.raises(ConfigError, match="nobody could decide anything"):
        load_policy(settings(written(tmp_path, '[tenants."*"]\n')))


def test_keys_stand_beside_the_file_and_a_tenant_without_a_section_is_trusted_nothing(tmp_path: Path):
    (tmp_path / "acme.jwks.json").write_text(json.dumps({"keys": []}))
    loaded = load_policy(settings(written(tmp_path, '[tenants.acme]\nkeys = "acme.jwks.json"\n')))
    assert loaded.trust("acme").keys_file == tmp_path / "acme.jwks.json"
    assert (loaded.trust("globex").keys_file, loaded.trust("globex").unsigned) == (None, False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tenants", "is no TOML"),
        ('[tenants."*"]\nkeys = "none.jwks.json"\n', "none.jwks.json cannot be read"),
        ('[tenants."*"]\nunsigned = true\n[[tenants."*".rules]]\ntool = "refnd"\ndeny = "no"\n', "there is no tool refnd"),
        ("[tenants.acme]\nunsigned = 2026-01-01\n", "dates, times"),
    ],
)
async def test_doctor_and_workers_tell_the_same_mistake(tmp_path: Path, text: str, sentence: str):
    wrong = settings(written(tmp_path, text))
    with pytest.raises(ConfigError, match=sentence):
        load_policy(wrong)
    with pytest.raises(ConfigError, match=sentence):
        await CHECKS["policy"](wrong)


async def test_doctor_warns_of_unsigned_decisions():
    assert "without a signature for: *" in await CHECKS["policy"](settings(EXAMPLE))


def test_a_file_that_is_not_there_is_a_wrong_setting(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(settings(tmp_path / "none.toml"))
