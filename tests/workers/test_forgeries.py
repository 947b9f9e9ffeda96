"""Case 35: nine ways to forge an approval, each refused with its own reason, the thread still paused, nothing run (P3, P4)."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.agent.tools import ToolContext
from flows.approvals.rules import parse_policy
from infra.identity.signatures import JwsVerifier, TenantTrust
from infra.identity.signing import ApproverKey, new_key
from infra.settings import Settings
from tests.fakes.agents import THREAD, World, one
from tests.fakes.chat_model import call, say
from tests.infra.identity.deeds import claims_of, key_set
from tests.workers.desk import Desk, asked, decided
from topics.envelope import Event
from topics.events import ApprovalAccepted, ApprovalDecided, ApprovalExecuted, ApprovalRefused, ApprovalRequested
from topics.records import RawRecord
from workers.policy import load_policy


@dataclass
class Gate:
    """A desk whose verifier is the real one, a refund that waits, and people with keys."""

    desk: Desk
    request: ApprovalRequested
    mia: ApproverKey
    joe: ApproverKey
    requester: ApproverKey

    def said(self, key: ApproverKey | None = None, *, tenant: str = "acme", life_s: int = 900, **changes: Any) -> ApprovalDecided:
        """A decision on what waits, signed."""
        decision = decided(self.request, **changes).payload
        return (key or self.mia).sign(decision, tenant=tenant, tool=self.request.tool, now=self.desk.clock.now(), life_s=life_s)

    async def refusal(self, decision: ApprovalDecided, *, id_: str = "forged") -> tuple[str, str]:
        """What its sender is told; and nothing else has happened."""
        record = RawRecord("approvals.decisions", 0, 0, None, b"")
        told = await self.desk.handle(Event(id_, "test", "acme", f"acme/{decision.thread_id}", decision, record))
        answer = one(ApprovalRefused, told)
        assert answer.decision_id == id_
        assert not [payload for payload in told if isinstance(payload, ApprovalExecuted)]
        assert not self.desk.world.effects()
        assert [pending.approval_id for pending in (await self.desk.world.agent().status(THREAD)).pending] == [
            self.request.approval_id
        ]
        return answer.code, answer.reason


@pytest.fixture
async def gate(tmp_path: Path) -> Gate:
    return await opened(tmp_path)


async def opened(tmp_path: Path, policy: dict[str, Any] | None = None) -> Gate:
    """A refund that waits."""
    mia, joe = new_key("mia", ("refunds",), key_id="mia-1"), new_key("joe", (), key_id="joe-1")
    requester = new_key("u-9", ("refunds",), key_id="u-9-1")
    trust = {
        "acme": TenantTrust(key_set(tmp_path, [mia, requester])),
        "globex": TenantTrust(key_set(tmp_path, [mia, joe], name="globex.jwks.json")),
    }
    desk = Desk(World(policy=parse_policy(policy, source="policy")) if policy else World())
    desk.verifier = JwsVerifier(lambda tenant: trust.get(tenant, TenantTrust()), desk.clock)
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 4990})), say("done")]
    return Gate(desk, one(ApprovalRequested, await desk.handle(asked("q1"))), mia, joe, requester)


def unsigned(gate: Gate) -> ApprovalDecided:
    return decided(gate.request).payload


def by_an_unknown_key(gate: Gate) -> ApprovalDecided:
    return gate.said(new_key("mia", ("refunds",), key_id="mia-2"))


def over_other_arguments(gate: Gate) -> ApprovalDecided:
    """A signature over 49.90 where 4990 waits: the digest on the record is the right one, the signed one is not."""
    return gate.said(args_digest="of 49.90").model_copy(update={"args_digest": gate.request.args_digest})


def for_another_tenant(gate: Gate) -> ApprovalDecided:
    """Mia decides for globex too, with the same key."""
    return gate.said(tenant="globex")


def expired_by_a_second(gate: Gate) -> ApprovalDecided:
    decision = gate.said(life_s=60)
    gate.desk.clock.advance(61)
    return decision


def by_the_requester(gate: Gate) -> ApprovalDecided:
    return gate.said(gate.requester)


def key_in_the_message(gate: Gate) -> ApprovalDecided:
    """The token brings its own key, and everything else is right."""
    mallory = new_key("mia", ("refunds",), key_id="mia-1")
    header = {"alg": "EdDSA", "kid": "mia-1", "jwk": mallory.entry}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims_of(gate.said()))]
    signature = mallory.key.get_op_key("sign").sign(b".".join(parts))
    token = b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()
    return unsigned(gate).model_copy(update={"signature": token})


def key_of_another_tenant(gate: Gate) -> ApprovalDecided:
    return gate.said(gate.joe)


@pytest.mark.parametrize(
    ("forge", "refused"),
    [
        (unsigned, ("forbidden", "unsigned")),
        (by_an_unknown_key, ("forbidden", "unknown_key")),
        (over_other_arguments, ("mismatch", "other_arguments")),
        (for_another_tenant, ("forbidden", "other_tenant")),
        (expired_by_a_second, ("forbidden", "token_expired")),
        (by_the_requester, ("forbidden", "requester")),
        (key_in_the_message, ("forbidden", "header_not_allowed")),
        (key_of_another_tenant, ("forbidden", "unknown_key")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_forged_approval_is_refused_with_its_reason(
    gate: Gate, forge: Callable[[Gate], ApprovalDecided], refused: tuple[str, str]
):
    assert await gate.refusal(forge(gate)) == refused
    assert await gate.refusal(forge(gate).model_copy(update={"approver": "u-9"}), id_="again") == refused
    executed = one(ApprovalExecuted, await gate.desk.handle(decided(gate.request, id_="right", signature=gate.said().signature)))
    assert executed.status == "ok", "what is right still counts"
    assert len(gate.desk.world.effects()) == 1


@pytest.fixture
async def bare(tmp_path: Path) -> Gate:
    """The same refund where no policy file is named: what workers that were told nothing believe."""
    gate = await opened(tmp_path)
    gate.desk.verifier = JwsVerifier(load_policy(Settings(policy_file=None)).trust, gate.desk.clock)
    return gate


@given(
    decision=st.sampled_from(["approve", "reject", "respond", "edit"]),
    approver=st.text(min_size=1, max_size=20),
    signature=st.one_of(st.none(), st.just(""), st.text(max_size=40)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
async def test_without_a_policy_no_word_counts_whoever_says_it(bare: Gate, decision: str, approver: str, signature: str | None):
    """Silence of the operator is not trust: the thread waits on, and the sender hears why."""
    changes = {"decision": decision, "approver": approver, "message": "ok", "arguments": {"order": "A", "cents": 1}}
    told = decided(bare.request, **changes, signature=signature).payload
    code, reason = await bare.refusal(told, id_=f"{decision} {approver} {signature}")
    assert (code, reason) == ("forbidden", "unsigned") if not signature else code == "forbidden"


async def test_without_a_policy_no_signature_counts_either(bare: Gate):
    assert await bare.refusal(unsigned(bare)) == ("forbidden", "unsigned")
    assert await bare.refusal(bare.said(), id_="signed") == ("forbidden", "unknown_key")


async def test_a_token_is_used_once(tmp_path: Path):
    """A vote taken from the topic and sent again, as an event of its own or as the same one, does not make two of one."""
    rules = [{"tool": "refund", "ask": {"roles": ["refunds"], "quorum": 2}}]
    gate = await opened(tmp_path, {"tenants": {"acme": {"keys": "acme.jwks.json", "rules": rules}}})
    vote = gate.said()
    (counted,) = await gate.desk.handle(decided(gate.request, id_="d1", signature=vote.signature))
    assert isinstance(counted, ApprovalAccepted)
    assert (counted.standing, counted.votes, counted.needed, counted.key_id) == ("counted", 1, 2, "mia-1")
    assert await gate.desk.handle(decided(gate.request, id_="d1", signature=vote.signature)) == [counted]
    assert await gate.refusal(vote, id_="copied") == ("forbidden", "replayed")
    assert await gate.refusal(gate.said(), id_="mia again") == ("duplicate", "voted")


async def test_a_tool_has_nothing_to_publish_with_and_what_it_could_write_is_unsigned(gate: Gate):
    """The ninth: tool code in the worker. Its context has no publisher, the worker no key; the ACLs deny the topic besides."""
    held = {field.name: str(field.type) for field in fields(ToolContext)}
    assert set(held) == {"tenant", "user_id", "idempotency_key", "service", "retriever"}
    assert await gate.refusal(unsigned(gate).model_copy(update={"approver": "mia"})) == ("forbidden", "unsigned")
