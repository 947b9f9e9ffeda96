"""Signed decisions: what is believed, and each reason why not (P3, P4; case 35)."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import OctKey

from infra.identity.signatures import Identity, TenantTrust
from infra.identity.signing import ApproverKey, new_key
from tests.infra.identity.deeds import (
    DECIDED,
    Now,
    claims_of,
    ec_entry,
    issuer_entry,
    key_set,
    mia,
    signed,
    verifier,
    with_claims,
)
from topics.errors import ConfigError, ForgedError, OutageError
from topics.events import ApprovalDecided

EDIT = DECIDED.model_copy(update={"decision": "edit", "arguments": {"cents": 10}, "message": "less"})


def refusal(checks: Any, decided: ApprovalDecided, *, tenant: str = "acme", tool: str = "refund") -> tuple[str, str]:
    with pytest.raises(ForgedError) as caught:
        checks.verify(tenant, decided, tool=tool)
    assert (decided.signature or "no signature") not in str(caught.value)
    return caught.value.answer_code, caught.value.reason


@pytest.mark.parametrize("decided", [DECIDED, EDIT, DECIDED.model_copy(update={"decision": "reject", "message": "no 🙈"})])
def test_a_signed_decision_is_its_key_s_person_s(tmp_path: Path, decided: ApprovalDecided):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    said = signed(key, decided)
    found = checks.verify("acme", said, tool="refund")
    assert (found.person, found.roles, found.key_id) == ("mia", {"refunds"}, "mia-1")
    assert found.token_id == claims_of(said)["jti"]


def test_who_the_decision_says_it_is_from_does_not_matter(tmp_path: Path):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    assert checks.verify("acme", signed(key, DECIDED.model_copy(update={"approver": "the boss"})), tool="refund").person == "mia"


def test_an_es256_key_and_the_new_name_of_ed25519_are_taken_too(tmp_path: Path):
    key, (ec, entry) = mia(), ec_entry()
    keys = key_set(tmp_path, [{**key.entry, "alg": "Ed25519"}, entry])
    checks = verifier(acme=TenantTrust(keys))
    for name, private, kid, person in (("Ed25519", key.key, "mia-1", "mia"), ("ES256", ec, "ann-ec", "ann")):
        claims = claims_of(signed(key)) | {"sub": person}
        header = {"alg": name, "kid": kid, "typ": "JWT"}
        token = jws.serialize_compact(header, json.dumps(claims).encode(), private, algorithms=[name])
        assert checks.verify("acme", DECIDED.model_copy(update={"signature": token}), tool="refund").person == person


def test_an_issuer_s_word_for_person_and_roles_is_believed(tmp_path: Path):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [issuer_entry(key)])))
    decided = with_claims(key, signed(key), sub="joe", roles=["treasury", "refunds"])
    assert checks.verify("acme", decided, tool="refund") == Identity(
        "joe", frozenset({"treasury", "refunds"}), "mia-1", claims_of(decided)["jti"]
    )


def test_a_person_s_key_speaks_for_nobody_else_and_gives_itself_no_roles(tmp_path: Path):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    assert refusal(checks, with_claims(key, signed(key), sub="joe")) == ("forbidden", "other_person")
    assert checks.verify("acme", with_claims(key, signed(key), roles=["treasury"]), tool="refund").roles == {"refunds"}


def test_an_unsigned_word_counts_only_where_the_tenant_says_so(tmp_path: Path):
    keys = key_set(tmp_path, [mia()])
    checks = verifier(acme=TenantTrust(keys), home=TenantTrust(unsigned=True))
    for signature in (None, ""):
        assert refusal(checks, DECIDED.model_copy(update={"signature": signature})) == ("forbidden", "unsigned")
        assert refusal(checks, DECIDED, tenant="nobody knows") == ("forbidden", "unsigned")
    assert checks.verify("home", DECIDED, tool="refund") == Identity("mia")
    # A signature that does not hold is never taken for an unsigned word.
    assert refusal(checks, signed(mia()), tenant="home") == ("forbidden", "unknown_key")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "globex"}, ("forbidden", "other_tenant")),
        ({"thread": "T-18"}, ("mismatch", "other_thread")),
        ({"approval": "a2"}, ("mismatch", "other_approval")),
        ({"tool": "wire_money"}, ("mismatch", "other_tool")),
        ({"digest": "cd" * 32}, ("mismatch", "other_arguments")),
        ({"decision": "approve"}, ("mismatch", "other_decision")),
        ({"edited": "00" * 32}, ("mismatch", "other_edit")),
        ({"edited": None}, ("mismatch", "other_edit")),
        ({"message": None}, ("mismatch", "other_message")),
        ({"jti": None}, ("forbidden", "claim_missing")),
        ({"jti": "short"}, ("forbidden", "claim_missing")),
        ({"exp": None}, ("forbidden", "claim_missing")),
        ({"exp": "9999999999"}, ("forbidden", "claim_missing")),
        ({"exp": 1e12}, ("forbidden", "claim_missing")),
        ({"iat": None}, ("forbidden", "claim_missing")),
        ({"sub": ""}, ("forbidden", "claim_missing")),
        ({"aud": ["acme", "globex"]}, ("forbidden", "claim_missing")),
        ({"exp": 9_999_999_999}, ("forbidden", "token_lives_too_long")),
        ({"iat": 9_999_999_998, "exp": 9_999_999_999}, ("forbidden", "token_from_future")),
    ],
)
def test_a_signature_is_for_one_decision_and_says_all_of_it(tmp_path: Path, changes: dict[str, Any], reason: tuple[str, str]):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    assert refusal(checks, with_claims(key, signed(key, EDIT), **changes)) == reason


def test_a_signature_ends_with_its_second(tmp_path: Path):
    key, clock = mia(), Now()
    checks = verifier(clock, acme=TenantTrust(key_set(tmp_path, [key])))
    decided = signed(key)
    clock.wait(899)
    assert checks.verify("acme", decided, tool="refund").person == "mia"
    clock.wait(1)
    assert refusal(checks, decided) == ("forbidden", "token_expired")


def forged(header: dict[str, Any], claims: dict[str, Any], key: Any) -> ApprovalDecided:
    """A token whose header is anything at all."""
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)]
    signature = key.key.get_op_key("sign").sign(b".".join(parts)) if isinstance(key, ApproverKey) else key
    parts.append(base64.urlsafe_b64encode(signature).rstrip(b"="))
    return DECIDED.model_copy(update={"signature": b".".join(parts).decode()})


def test_the_message_never_chooses_its_key_or_algorithm(tmp_path: Path):
    """Case 35, eight: keys in the header, keys of another tenant, and algorithms that turn a public key into a secret."""
    key, mallory, joe = mia(), new_key("mia", (), key_id="mia-1"), new_key("joe", (), key_id="joe-1")
    keys, others = key_set(tmp_path, [key]), key_set(tmp_path, [joe], name="globex.jwks.json")
    checks = verifier(acme=TenantTrust(keys), globex=TenantTrust(others))
    claims, plain = claims_of(signed(key)), {"alg": "EdDSA", "kid": "mia-1"}
    for extra in ("jwk", "jku", "x5u", "x5c", "crit", "b64"):
        value = {"jwk": mallory.entry, "crit": ["b64"], "b64": False}.get(extra, "https://evil.example/keys")
        assert refusal(checks, forged({**plain, extra: value}, claims, mallory)) in {
            ("forbidden", "header_not_allowed"),
            ("forbidden", "malformed_signature"),
        }
    assert refusal(checks, forged(plain, claims, mallory)) == ("forbidden", "bad_signature")
    assert refusal(checks, forged({"alg": "EdDSA", "kid": "joe-1"}, claims, joe)) == ("forbidden", "unknown_key")
    for kid in (None, 7, ["mia-1"], {"kid": "mia-1"}, "../mia-1", ""):
        assert refusal(checks, forged({"alg": "EdDSA", "kid": kid}, claims, key)) == ("forbidden", "unknown_key")
    for alg in ("none", "HS256", "ES256", "RS256", "Ed25519", "eddsa"):
        assert refusal(checks, forged({**plain, "alg": alg}, claims, b"")) == ("forbidden", "algorithm_not_allowed")
    secret = OctKey.import_key(key.entry["x"].encode())
    confused = jws.serialize_compact({"alg": "HS256", "kid": "mia-1"}, json.dumps(claims), secret, algorithms=["HS256"])
    assert refusal(checks, DECIDED.model_copy(update={"signature": confused})) == ("forbidden", "algorithm_not_allowed")


@pytest.mark.parametrize(
    "signature",
    ["x", "..", "a.b.c", "e30.e30.", "e30", "bnVsbA.bnVsbA.bnVsbA", "W10.W10.W10", "é.é.é", "\ud800", "." * 20_000, "[" * 9_000],
)
def test_what_is_no_token_is_refused_and_breaks_nothing(tmp_path: Path, signature: str):
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [mia()])))
    code, reason = refusal(checks, DECIDED.model_copy(update={"signature": signature}))
    assert (code, reason in {"malformed_signature", "unknown_key", "header_not_allowed"}) == ("forbidden", True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_flipped_bit_anywhere_in_a_token_is_found(tmp_path: Path, place: int, bit: int):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    token = bytearray((signed(key).signature or "").encode())
    token[place % len(token)] ^= 1 << bit
    changed = token.decode("latin-1")
    # The last character of a part has bits that mean nothing: another text may be the same token.
    same = [base64.urlsafe_b64decode(part + "==") for part in (signed(key).signature or "").split(".")]
    decided = DECIDED.model_copy(update={"signature": changed})
    try:
        found = checks.verify("acme", decided, tool="refund")
    except ForgedError:
        return
    assert found.person == "mia"
    assert [len(base64.urlsafe_b64decode(part + "==")) for part in changed.split(".")] == [len(part) for part in same]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    field=st.sampled_from(["approval_id", "thread_id", "decision", "args_digest", "arguments", "message"]),
    text=st.text(min_size=1, max_size=20),
    number=st.integers(-(2**53) + 1, 2**53 - 1),
)
def test_no_field_of_a_signed_decision_can_be_changed(tmp_path: Path, field: str, text: str, number: int):
    """P4."""
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    value = {"arguments": {"cents": number}, "decision": "reject"}.get(field, text)
    changed = signed(key, EDIT).model_copy(update={field: value})
    if getattr(changed, field) == getattr(EDIT, field):
        return
    assert refusal(checks, changed)[0] == "mismatch"


def test_the_order_of_names_and_the_form_of_numbers_of_an_edit_do_not_matter(tmp_path: Path):
    key = mia()
    checks = verifier(acme=TenantTrust(key_set(tmp_path, [key])))
    decided = signed(key, EDIT.model_copy(update={"arguments": {"a": 1, "b": "ü"}}))
    again = decided.model_copy(update={"arguments": {"b": "\u00fc", "a": 1.0}})
    assert checks.verify("acme", again, tool="refund").person == "mia"
    endless = decided.model_copy(update={"arguments": {"a": float("inf")}})
    assert refusal(checks, endless) == ("mismatch", "other_edit")


def test_a_revoked_key_is_unknown_at_once_and_what_it_said_no_longer_stands(tmp_path: Path):
    key, other = mia(), new_key("joe", (), key_id="joe-1")
    keys = key_set(tmp_path, [key, other])
    checks = verifier(acme=TenantTrust(keys), home=TenantTrust(unsigned=True))
    assert checks.verify("acme", signed(key), tool="refund").key_id == "mia-1"
    assert checks.stands("acme", "mia-1")
    key_set(tmp_path, [other])
    os.utime(keys, ns=(1, 1))
    assert refusal(checks, signed(key)) == ("forbidden", "unknown_key")
    assert [checks.stands("acme", one) for one in ("mia-1", "joe-1", None)] == [False, True, False]
    assert checks.stands("home", None)


def test_keys_that_cannot_be_read_now_decide_nothing_either_way(tmp_path: Path):
    """Half a file, while it is written: the record waits, instead of being refused or believed on old keys."""
    key = mia()
    keys = key_set(tmp_path, [key])
    checks = verifier(acme=TenantTrust(keys))
    assert checks.check("acme") == 1
    whole = keys.read_text()
    for broken in (whole[:40], None):
        keys.write_text(broken) if broken else keys.unlink()
        with pytest.raises(OutageError, match=r"acme\.jwks\.json"):
            checks.verify("acme", signed(key), tool="refund")
        with pytest.raises(OutageError):
            checks.stands("acme", "mia-1")
        with pytest.raises(ConfigError):
            checks.check("acme")
    keys.write_text(whole)
    assert checks.verify("acme", signed(key), tool="refund").person == "mia"
