"""What `sluice doctor` finds in a policy that reads well."""

from dataclasses import dataclass
from typing import Any

import pytest

from flows.approvals.faults import KnownPeople, faults_of
from flows.approvals.policy import ToolClass
from flows.approvals.rules import parse_policy
from topics.events import Decision


@dataclass(frozen=True)
class FakeTool:
    name: str
    effect: ToolClass
    argument_names: tuple[str, ...]
    asks: bool = True
    allowed_decisions: tuple[Decision, ...] = ("approve", "reject")


TOOLS = (FakeTool("refund", "IRREVERSIBLE", ("order", "cents")), FakeTool("note", "WRITE", ("text",)))
PEOPLE = KnownPeople({"mia": frozenset({"refunds"}), "leo": frozenset({"refunds", "lead"})})
LARGE = {"path": "cents", "is": ">", "value": 100}


def faults(*rules: dict[str, Any], people: KnownPeople | None = PEOPLE, **section: Any) -> list[str]:
    parsed = parse_policy({"tenants": {"*": {"rules": list(rules), **section}}}, source="policy.toml")
    return faults_of("*", parsed.file.tenants["*"], TOOLS, people)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([{"tool": "refnd", "deny": "no"}], "there is no tool refnd"),
        ([{"tool": "note", "class": "READ", "deny": "no"}], "no tool note is READ"),
        ([{"tool": "refund", "when": [{"path": "euros", "is": ">", "value": 1}], "deny": "no"}], "has an argument euros"),
        ([{"deny": "no"}, {"name": "late", "tool": "note", "allow": True}], "rule 2 (late) is never reached"),
        ([{"when": [LARGE], "deny": "no"}, {"tool": "refund", "when": [LARGE], "ask": {}}], "rule 2 is never reached"),
        ([{"tool": "*", "allow": True}], "would allow refund, which is IRREVERSIBLE"),
        ([{"tool": "note", "ask": {"allowed_decisions": ["edit"]}}], "note allows none"),
        ([{"ask": {"people": ["zoe"]}}], "no key is zoe's"),
        ([{"ask": {"roles": ["boss"]}}], "no key has the role boss"),
        ([{"ask": {"roles": ["lead"], "quorum": 2}}], "the quorum is 2, and 1 people"),
        ([{"ask": {"quorum": 3}}], "the quorum is 3, and 2 people"),
    ],
)
def test_a_rule_that_cannot_mean_what_it_says_is_found(rules: list[dict[str, Any]], sentence: str):
    assert any(sentence in fault for fault in faults(*rules)), faults(*rules)


@pytest.mark.parametrize(
    "rules",
    [
        [{"tool": "refund", "when": [LARGE], "ask": {"roles": ["lead"]}}, {"tool": "refund", "allow": True}],
        [{"class": "IRREVERSIBLE", "allow": True}],
        [{"requester": "vip", "deny": "no"}, {"deny": "no"}],
        # Where the amount cannot be told, the first steps back and the second still decides.
        [{"tool": "refund", "when": [LARGE], "allow": True}, {"tool": "refund", "when": [LARGE], "deny": "no"}],
        [{"ask": {"people": ["mia"], "roles": ["lead"], "quorum": 2}}],
        [{"ask": {"roles": ["lead"], "quorum": 2, "escalations": [{"after_s": 9, "people": ["mia"]}]}}],
    ],
)
def test_a_rule_that_can_come_true_is_no_fault(rules: list[dict[str, Any]]):
    assert faults(*rules) == []


def test_an_issuer_may_name_anybody():
    assert faults({"ask": {"people": ["zoe"], "roles": ["boss"], "quorum": 9}}, people=KnownPeople({}, open_ended=True)) == []


def test_roles_without_keys_can_never_be_shown():
    assert faults({"ask": {"roles": ["lead"]}}, people=None)
    assert faults({"ask": {"people": ["mia"]}}, people=None) == []


@pytest.mark.parametrize("amounts", [{"refnd": "cents"}, {"refund": "euros"}])
def test_an_amount_that_is_nowhere_is_found(amounts: dict[str, str]):
    assert len(faults(amounts=amounts)) == 1
    assert faults(amounts={"refund": "cents"}) == []
