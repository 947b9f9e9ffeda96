"""The policy file against a simple table: who is asked, who is denied, and what is never let through."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.approvals.conditions import Condition
from flows.approvals.policy import Allow, Ask, Deny, Judgement, ToolClass
from flows.approvals.rules import PolicyRules, parse_policy
from topics.errors import ConfigError
from topics.events import Decision, Escalation, Terms


@dataclass(frozen=True)
class FakeTool:
    name: str = "refund"
    effect: ToolClass = "IRREVERSIBLE"
    asks: bool = True
    allowed_decisions: tuple[Decision, ...] = ("approve", "edit", "reject", "respond")


def policy(*rules: dict[str, Any], **section: Any) -> PolicyRules:
    return parse_policy({"tenants": {"*": {"rules": list(rules), **section}}}, source="policy.toml")


def word(rules: PolicyRules, arguments: dict[str, Any], tool: FakeTool | None = None, requester: str | None = "u-9") -> Judgement:
    return rules.verdict_on(tool or FakeTool(), arguments, tenant="acme", requester=requester)


# The matrix: every rule is a row of a table, and the first row that fits is the answer.

Row = tuple[str, str | None, str | None, int | None, str]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["refund", "close", "re*", "*"]),
        st.sampled_from([None, "WRITE", "IRREVERSIBLE"]),
        st.sampled_from([None, "vip-*", "u-9"]),
        st.sampled_from([None, 0, 100, 10_000]),
        st.sampled_from(["allow", "deny", "ask"]),
    ),
    max_size=6,
)
NAMES = {"refund": {"refund", "re*", "*"}, "close": {"close", "*"}, "read": {"re*", "*"}}
REQUESTERS: dict[str | None, set[str]] = {"u-9": {"u-9"}, "vip-1": {"vip-*"}, "other": set()}


def by_table(rows: list[Row], tool: FakeTool, cents: int, requester: str | None) -> str:
    for number, (name, effect, who, above, what) in enumerate(rows):
        fits = (
            name in NAMES[tool.name]
            and effect in (None, tool.effect)
            and (who is None or who in REQUESTERS[requester])
            and (above is None or cents > above)
        )
        if fits:
            return f"{what} {number}"
    return "declared"


@settings(max_examples=300, deadline=None)
@given(
    rows=ROWS,
    tool=st.sampled_from([FakeTool(), FakeTool("close", "WRITE"), FakeTool("read", "READ", asks=False)]),
    cents=st.sampled_from([0, 1, 100, 101, 9_999, 10_001]),
    requester=st.sampled_from(["u-9", "vip-1", "other"]),
)
def test_the_first_row_that_fits_decides(rows: list[Row], tool: FakeTool, cents: int, requester: str):
    written = []
    for number, (name, effect, who, above, what) in enumerate(rows):
        rule: dict[str, Any] = {"tool": name}
        rule |= {"class": effect} if effect else {}
        rule |= {"requester": who} if who else {}
        rule |= {"when": [{"path": "cents", "is": ">", "value": above}]} if above is not None else {}
        rule |= {"allow": {"allow": True}, "deny": {"deny": f"row {number}"}, "ask": {"ask": {"quorum": number + 1}}}[what]
        written.append(rule)
    said = word(policy(*written), {"cents": cents}, tool, requester)
    match by_table(rows, tool, cents, requester).split():
        case ["allow", _]:
            assert said == Allow()
        case ["deny", number]:
            assert said == Deny(f"row {number}")
        case ["ask", number]:
            assert isinstance(said, Ask)
            assert said.terms.quorum == int(number) + 1
        case _:
            assert said == (Ask(tool.allowed_decisions) if tool.asks else Allow())


# Conditions

ODD = [None, True, "49", [], {}, [49], 49.5]


@pytest.mark.parametrize("found", ODD)
def test_an_argument_that_cannot_be_compared_asks_or_denies_and_is_never_let_through(found: Any):
    small = {"path": "cents", "is": "<=", "value": 49}
    large = {"path": "cents", "is": ">", "value": 10_000}
    allow, ask = {"tool": "refund", "when": [small], "allow": True}, {"when": [large], "ask": {"quorum": 2}}
    said = word(policy(allow, ask, {"allow": True, "tool": "*"}), {"cents": found})
    assert said != Allow() or found == 49.5
    if not isinstance(found, float):
        assert isinstance(said, Ask)


@pytest.mark.parametrize(
    ("condition", "arguments", "holds"),
    [
        ({"path": "cents", "is": "=", "value": 5}, {"cents": 5.0}, True),
        ({"path": "cents", "is": "=", "value": 1}, {"cents": True}, None),
        ({"path": "cents", "is": "!=", "value": 5}, {"cents": "5"}, None),
        ({"path": "cents", "is": "in", "value": [1, 2]}, {"cents": 2}, True),
        ({"path": "cents", "is": "in", "value": [1, "2"]}, {"cents": 3}, False),
        ({"path": "cents", "is": "in", "value": ["1"]}, {"cents": 1}, None),
        ({"path": "to", "is": "like", "value": "gift_*"}, {"to": "gift_card_1"}, True),
        ({"path": "to", "is": "like", "value": "gift_*"}, {"to": None}, None),
        ({"path": "items", "count": True, "is": ">=", "value": 2}, {"items": [1, 2]}, True),
        ({"path": "items", "count": True, "is": ">=", "value": 2}, {"items": "ab"}, None),
        ({"path": "items.1.price", "is": "<", "value": 3}, {"items": [{}, {"price": 2}]}, True),
        ({"path": "items.7.price", "is": "<", "value": 3}, {"items": [{}]}, None),
        ({"path": "other", "is": "<", "value": 3}, {"cents": 2}, False),
    ],
)
def test_what_a_condition_says_of_an_argument(condition: dict[str, Any], arguments: dict[str, Any], holds: bool | None):
    written = {key: tuple(value) if isinstance(value, list) else value for key, value in condition.items()}
    assert Condition.model_validate(written).holds(arguments) is holds


def test_a_caller_without_a_name_is_no_known_requester():
    named = policy({"requester": "vip-*", "allow": True}, {"requester": "intern-*", "deny": "Not you."})
    assert word(named, {}, requester="vip-1") == Allow()
    assert word(named, {}, requester=None) == Deny("Not you.")


# What is asked


def test_the_terms_of_a_rule_travel_whole():
    ask = {
        "people": ["mia"],
        "roles": ["refunds"],
        "quorum": 2,
        "requester_excluded": False,
        "allowed_decisions": ["approve", "reject"],
        "remind_every_s": 60,
        "escalations": [{"after_s": 120, "roles": ["lead"]}],
        "expires_after_s": 600,
        "at_expiry": "cancel",
        "on_new_message": "revise",
    }
    said = word(policy({"ask": ask}, amounts={"refund": "cents"}), {"cents": 4990})
    assert said == Ask(
        ("approve", "reject"),
        Terms(
            people=("mia",),
            roles=("refunds",),
            quorum=2,
            requester_excluded=False,
            remind_every_s=60,
            escalations=(Escalation(after_s=120, roles=("lead",)),),
            expires_after_s=600,
            at_expiry="cancel",
            on_new_message="revise",
        ),
        4990,
    )


def test_a_rule_narrows_what_a_tool_allows_and_never_widens_it():
    tool = FakeTool(allowed_decisions=("approve", "reject"))
    said = word(policy({"ask": {"allowed_decisions": ["edit", "reject"]}}), {}, tool)
    assert isinstance(said, Ask)
    assert said.allowed_decisions == ("reject",)


@pytest.mark.parametrize("amount", [True, "5", 1.5, None])
def test_only_a_whole_number_is_an_amount(amount: Any):
    said = word(policy(amounts={"refund": "cents"}), {"cents": amount})
    assert isinstance(said, Ask)
    assert said.amount is None


# Tenants and versions


def _two(globex: str = "no") -> PolicyRules:
    sections = {"*": {"rules": [{"deny": "no"}]}, "globex": {"rules": [{"deny": globex}], "unsigned": True, "keys": "g.jwks.json"}}
    return parse_policy({"tenants": sections}, source="policy.toml")


def test_a_tenant_has_its_own_section_or_that_of_everybody_else():
    rules = _two("never")
    assert rules.verdict_on(FakeTool(), {}, tenant="globex", requester=None) == Deny("never")
    assert rules.verdict_on(FakeTool(), {}, tenant="acme", requester=None) == Deny("no")
    assert (rules.unsigned("globex"), rules.keys("globex")) == (True, "g.jwks.json")
    assert (rules.unsigned("acme"), rules.keys("acme")) == (False, None)


def test_a_tenant_that_no_section_speaks_of_asks_as_tools_declare_and_wants_signatures():
    rules = parse_policy({"tenants": {"globex": {"unsigned": True}}}, source="policy.toml")
    assert rules.verdict_on(FakeTool(), {}, tenant="acme", requester=None) == Ask(FakeTool().allowed_decisions)
    assert not rules.unsigned("acme")


def test_a_change_for_one_tenant_is_a_new_version_for_it_alone():
    before, after = _two("no"), _two("never")
    assert before.version_of("acme") == after.version_of("acme")
    assert before.version_of("globex") != after.version_of("globex")


def test_keys_and_signatures_are_no_part_of_the_version():
    bare, keyed = policy({"deny": "no"}), policy({"deny": "no"}, unsigned=True, keys="a.jwks.json")
    assert bare.version_of("acme") == keyed.version_of("acme")


def test_the_file_may_say_its_version():
    rules = parse_policy({"version": "2026-11", "tenants": {"*": {}}}, source="policy.toml")
    assert {rules.version_of(tenant) for tenant in ("acme", "globex")} == {"2026-11"}


# Mistakes

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"rule": [{"deny": "no"}]}, "tenants.*.rule"),
    (
        {"rules": [{"deny": "no"}, {"name": "big", "deny": "no", "allow": True}]},
        "tenants.*.rules[2] (big): a rule says exactly one",
    ),
    ({"rules": [{"deny": "no", "tol": "x"}]}, "tenants.*.rules[1].tol"),
    ({"rules": [{"ask": {"quorum": 0}}]}, "tenants.*.rules[1].ask.quorum"),
    ({"rules": [{"ask": {"quorum": "2"}}]}, "tenants.*.rules[1].ask.quorum"),
    ({"rules": [{"ask": {"people": ["mia"], "quorum": 2}}]}, "the quorum is 2, and 1 people are named"),
    ({"rules": [{"ask": {"escalations": [{"after_s": 5}]}}]}, "names people or roles"),
    ({"rules": [{"ask": {"expires_after_s": 5, "escalations": [{"after_s": 5, "people": ["a"]}]}}]}, "after the end of the time"),
    ({"rules": [{"when": [{"path": "a", "is": "~", "value": 1}], "deny": "no"}]}, "tenants.*.rules[1].when[1].is"),
    ({"rules": [{"when": [{"path": "a", "is": "in", "value": 1}], "deny": "no"}]}, 'goes with "in"'),
    ({"rules": [{"when": [{"path": "a", "is": "<", "value": "1"}], "deny": "no"}]}, "takes a number"),
    ({"rules": [{"allow": False}]}, "tenants.*.rules[1].allow"),
    ({"unsigned": "yes"}, "tenants.*.unsigned"),
]


@pytest.mark.parametrize(("section", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_with_its_place(section: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError) as wrong:
        parse_policy({"tenants": {"*": section}}, source="policy.toml")
    assert sentence in str(wrong.value)
    assert str(wrong.value).startswith("policy.toml: ")
    assert "\n" not in str(wrong.value)


@given(st.lists(st.sampled_from(["approve", "edit", "reject", "respond"]), min_size=1, unique=True))
def test_some_decision_is_always_allowed(wanted: list[str]):
    for count in range(5):
        for allowed in itertools.combinations(("approve", "edit", "reject", "respond"), count):
            said = word(policy({"ask": {"allowed_decisions": wanted}}), {}, FakeTool(allowed_decisions=allowed))
            assert isinstance(said, Ask)
            assert said.allowed_decisions
            assert set(said.allowed_decisions) <= {*allowed, "reject"}
