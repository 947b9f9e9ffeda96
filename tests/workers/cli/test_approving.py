"""Who decides on the command line, and what people see of an approval."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.identity.key_sets import parse_key_set
from infra.identity.signatures import JwsVerifier, TenantTrust
from infra.identity.signing import new_key, read_private, write_private
from infra.settings import Settings
from tests.infra.identity.deeds import DECIDED, issuer_entry
from topics.approval_state import ApprovalState, Candidate
from topics.errors import ConfigError, RejectedError
from topics.events import ApprovalAccepted, ApprovalRequested, Escalation, Terms
from workers.cli import approvals, decisions, inbox
from workers.cli.approver import approver_of
from workers.demo.local_approver import local_approver
from workers.policy import load_policy

SIGNED_ONLY = '[tenants."*"]\nkeys = "keys.jwks.json"\n[tenants.home]\nunsigned = true\n'
TERMS = Terms(people=("mia",), roles=("lead",), quorum=2, escalations=(Escalation(after_s=60, people=("zoe",)),))
REQUEST = ApprovalRequested(
    approval_id="a1", thread_id="T-1", query_id="q1", interrupt_id="i", tool="refund", tool_class="WRITE",
    arguments={"cents": 4990}, args_digest="aa" * 32, policy_version="1", graph_version="1", terms=TERMS,
    allowed_decisions=("approve", "edit", "reject"), amount=4990, requester="u-9", expires_at=datetime(2026, 12, 1, tzinfo=UTC),
)  # fmt: skip


class Now:
    def now(self) -> datetime:
        return datetime.now(UTC)


def settings(folder: Path, **more: Any) -> Settings:
    return Settings(data_dir=folder, **more)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    write_private(tmp_path / "mia.jwk", new_key("mia", ("lead",), key_id="mia-1"))
    return tmp_path / "mia.jwk"


def test_the_key_says_who_decides(tmp_path: Path, key_file: Path):
    for approver in (
        approver_of(settings(tmp_path), tenant="acme", key_file=key_file, token=None),
        approver_of(settings(tmp_path, approver_key=key_file), tenant="acme", key_file=None, token=None),
    ):
        assert (approver.name, approver.is_unsigned) == ("mia", False)
        assert approver.signed(DECIDED, tenant="acme", tool="refund").signature


def test_a_token_from_elsewhere_is_carried_as_it_is(tmp_path: Path, key_file: Path):
    approver = approver_of(settings(tmp_path, approver_key=key_file), tenant="acme", key_file=None, token="a.b.c")
    assert approver.signed(DECIDED, tenant="acme", tool="refund").signature == "a.b.c"


def test_without_a_key_a_login_name_is_all_there_is_and_only_where_the_policy_takes_it(tmp_path: Path):
    assert approver_of(settings(tmp_path), tenant="acme", key_file=None, token=None).is_unsigned
    (tmp_path / "policy.toml").write_text(SIGNED_ONLY)
    strict = settings(tmp_path, policy_file=tmp_path / "policy.toml")
    assert approver_of(strict, tenant="home", key_file=None, token=None).is_unsigned
    with pytest.raises(ConfigError, match="acme takes signed decisions only"):
        approver_of(strict, tenant="acme", key_file=None, token=None)


def test_an_issuer_s_key_is_nobody_s(tmp_path: Path, key_file: Path):
    private = json.loads(key_file.read_text())
    issuer = {**issuer_entry(read_private(key_file)), "d": private["d"]}
    key_file.write_text(json.dumps(issuer))
    with pytest.raises(ConfigError, match="issuer's key"):
        approver_of(settings(tmp_path), tenant="acme", key_file=key_file, token=None)


def test_keygen_makes_a_key_and_adds_its_public_half(tmp_path: Path):
    out, keys = tmp_path / "mia.jwk", tmp_path / "acme.jwks.json"
    command = ["keygen", "--person", "mia", "--role", "lead", "--role", "refunds", "--out", str(out), "--add-to", str(keys)]
    done = CliRunner().invoke(approvals.app, command)
    assert done.exit_code == 0
    shown = json.loads(done.stdout)
    (public,) = parse_key_set(keys.read_bytes(), name="x").values()
    assert (shown["kid"], public.person, public.roles) == (public.key_id, "mia", {"lead", "refunds"})
    assert "d" not in shown
    assert read_private(out).public.key_id == public.key_id
    assert CliRunner().invoke(approvals.app, command).exit_code == 2, "a key is never overwritten"


def test_a_newcomer_s_decision_is_signed_without_their_doing_anything(tmp_path: Path):
    given = local_approver(tmp_path / "data")
    assert local_approver(tmp_path / "data") == given, "what is there stays"
    mine = settings(tmp_path, **given)
    loaded = load_policy(mine)
    assert loaded.warnings == ()
    approver = approver_of(mine, tenant="acme", key_file=None, token=None)
    signed = approver.signed(DECIDED, tenant="acme", tool="refund")
    checks = JwsVerifier(loaded.trust, Now())
    assert checks.verify("acme", signed, tool="refund").person == approver.name
    assert loaded.trust("acme") == TenantTrust(Path(given["policy_file"]).parent / "approvers.jwks.json")


def counted(person: str, digest: str) -> ApprovalAccepted:
    return ApprovalAccepted(
        approval_id="a1", thread_id="T-1", decision_id=person, decision="approve", approver=person, standing="counted",
        votes=1, needed=2, args_digest=digest, key_id=f"{person}-1",
    )  # fmt: skip


EDITED = Candidate(digest="bb" * 32, arguments={"cents": 100}, terms=TERMS, proposed_by="leo", decision_id="d2")
STATE = ApprovalState(
    tenant="acme", request=REQUEST, amendments=(EDITED,), answers=(counted("mia", "aa" * 32),), level=1, reminders=2
)


def test_whoever_decides_sees_who_must_how_many_until_when_and_what_stands():
    shown = dict(inbox.facts(STATE))
    assert shown["what will be done"] == 'refund (WRITE) {"cents": 4990}'
    assert shown["who may decide"] == "2 of: mia or role lead"
    assert shown["requester"] == "u-9 (may not decide)"
    assert shown["until"] == "2026-12-01 00:00:00 UTC, then reject"
    assert shown["escalation 1, reached"] == "zoe"
    assert shown["votes"] == "1 of 2: mia"
    assert shown["edit by leo, bbbbbbbbbbbb"] == '{"cents": 100} 0 of 2'
    assert "1 of 2 votes  amount 4990  until 2026-12-01" in next(iter(inbox.lines(STATE)))
    assert inbox.plain(STATE)["votes"] == [{"approver": "mia", "digest": "aa" * 32, "key_id": "mia-1"}]


@pytest.mark.parametrize(("wanted", "found"), [(None, "aa"), ("bbbbbbbb", "bb"), ("a" * 64, "aa")])
def test_a_digest_s_beginning_names_what_is_approved(wanted: str | None, found: str):
    assert approvals._digest(STATE, wanted) == found * 32


@pytest.mark.parametrize("wanted", ["bbbb", "cccccccc", ""])
def test_what_names_nothing_or_is_too_short_is_refused(wanted: str):
    with pytest.raises(RejectedError):
        approvals._digest(STATE, wanted)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"standing": "won", "votes": 1, "needed": 1}, "approve accepted for refund by mia, key mia-1"),
        ({"standing": "won", "votes": 2, "needed": 2, "key_id": None}, "by mia, unsigned (2 of 2 votes)"),
        ({}, "approve counts for refund by mia, key mia-1: 1 of 2 votes"),
        ({"standing": "proposed", "decision": "edit"}, "sluice approvals approve a1 --tenant acme --digest aaaaaaaaaaaa"),
    ],
)
def test_an_outcome_says_how_the_decision_stands(changes: dict[str, Any], says: str):
    accepted = counted("mia", "aa" * 32).model_copy(update=changes)
    assert says in decisions.how_it_stands(accepted, REQUEST, tenant="acme")


@pytest.mark.parametrize(("age", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400)])
def test_an_age_is_a_number_and_a_unit(age: str, seconds: float):
    assert approvals._seconds(age) == seconds


@pytest.mark.parametrize("age", ["", "2", "h", "-1h", "1.5h", "2 h"])
def test_another_age_is_refused(age: str):
    with pytest.raises(ConfigError, match="--older-than"):
        approvals._seconds(age)
