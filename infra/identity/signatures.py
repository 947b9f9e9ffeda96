"""Who a decision comes from: its signature against the tenant's own keys. Nothing here can sign.

Order: the tenant's set is looked into by `kid` and by nothing else in the token, the algorithm is the key's, the signature is
checked, and only then is a claim believed. Each refusal has its own reason, for the answer and the log; none quotes a token.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jws import CompactSignature, JWSRegistry
from pydantic import ValidationError

from infra.identity.key_sets import KeySet, KeySetFile, PublicKey
from infra.identity.tokens import CLOCK_SKEW_S, MAX_LIFE_S, Claims, meant_by
from topics.errors import ConfigError, ForgedError, OutageError
from topics.events import ApprovalDecided

MAX_TOKEN_CHARS: Final = 16_384
HEADER: Final = frozenset({"alg", "kid", "typ"})  # `typ` is written by most libraries and means nothing here
_REASONS: Final = {
    "aud": "other_tenant",
    "thread": "other_thread",
    "approval": "other_approval",
    "tool": "other_tool",
    "digest": "other_arguments",
    "decision": "other_decision",
    "edited": "other_edit",
    "message": "other_message",
}


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The current instant, aware, UTC."""
        ...


@dataclass(frozen=True, slots=True)
class TenantTrust:
    """Whom a tenant believes: the keys in a file, and an unsigned word only where `unsigned` says so."""

    keys_file: Path | None = None
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Who decided, as far as it can be shown. `key_id` and `token_id` are None where an unsigned word was good enough."""

    person: str
    roles: frozenset[str] = frozenset()
    key_id: str | None = None
    token_id: str | None = None


class _OnlyThisKey(JWSRegistry):
    """The algorithms of one key. EdDSA stays allowed beside its new name, since the curve is pinned with the key."""

    def get_alg(self, name: str) -> Any:
        if name not in (self.allowed or ()):
            raise ForgedError("algorithm_not_allowed", "the key is for another algorithm")
        return self.algorithms[name]


@dataclass(frozen=True, slots=True)
class JwsVerifier:
    """Checks decisions. `trust` tells whom a tenant believes now."""

    trust: Callable[[str], TenantTrust]
    clock: Clock
    _files: dict[Path, KeySetFile] = field(default_factory=dict[Path, KeySetFile])

    def check(self, tenant: str) -> int:
        """How many keys a tenant has; for a start that fails early.

        Raises:
            ConfigError: Its key set cannot be used.
        """
        try:
            return len(self._keys(tenant))
        except OutageError as error:
            raise ConfigError(str(error)) from error

    def verify(self, tenant: str, decided: ApprovalDecided, *, tool: str) -> Identity:
        """Tell who decided, and that they meant exactly this: tenant, thread, approval, tool, digest, edit and message.

        Raises:
            ForgedError: It cannot be shown; `reason` says why. Nothing was changed.
            OutageError: The tenant's key set cannot be read now.
        """
        if not decided.signature:
            if not self.trust(tenant).unsigned:
                raise ForgedError("unsigned", "this tenant takes signed decisions only")
            return Identity(decided.approver)
        token = _read(decided.signature)
        key = self._key(tenant, token)
        claims = _verified(decided.signature, key)
        self._check_time(claims)
        _check_meaning(claims, decided, tenant=tenant, tool=tool)
        if key.person is None:
            return Identity(claims.sub, frozenset(claims.roles), key.key_id, claims.jti)
        if claims.sub != key.person:
            raise ForgedError("other_person", "the key is another person's")
        return Identity(key.person, key.roles, key.key_id, claims.jti)

    def stands(self, tenant: str, key_id: str | None) -> bool:
        """Whether what this key said still counts: it is in the tenant's set now, or None and unsigned words count.

        Raises:
            OutageError: The tenant's key set cannot be read now.
        """
        return self.trust(tenant).unsigned if key_id is None else key_id in self._keys(tenant)

    def _keys(self, tenant: str) -> KeySet:
        path = self.trust(tenant).keys_file
        return {} if path is None else self._files.setdefault(path, KeySetFile(path)).keys()

    def _key(self, tenant: str, token: CompactSignature) -> PublicKey:
        header = token.headers()
        if not header.keys() <= HEADER:
            raise ForgedError("header_not_allowed", "the header may hold alg and kid: keys are not taken from a message")
        key_id: Any = header.get("kid")
        key = self._keys(tenant).get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise ForgedError("unknown_key", "the key is not in the tenant's set")
        return key

    def _check_time(self, claims: Claims) -> None:
        now = self.clock.now().timestamp()
        if claims.exp <= now:
            raise ForgedError("token_expired", "the signature's time is over: decide again")
        if claims.iat > now + CLOCK_SKEW_S:
            raise ForgedError("token_from_future", "the signature is from the future: is a clock wrong?")
        if claims.exp - claims.iat > MAX_LIFE_S:
            raise ForgedError("token_lives_too_long", f"a signature may live {MAX_LIFE_S} s")


def _read(signature: str) -> CompactSignature:
    """Take a token apart. Nothing in it is believed yet."""
    try:
        if len(signature) > MAX_TOKEN_CHARS:
            raise ForgedError("malformed_signature", "the signature is too long")
        token = jws.extract_compact(signature.encode("ascii"))
        header: Any = token.protected
        if not isinstance(header, dict):
            raise ForgedError("malformed_signature", "the signature has no header")
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ForgedError("malformed_signature", "the signature is no compact JWS") from error
    return token


def _verified(signature: str, key: PublicKey) -> Claims:
    """The claims of a token that this key signed."""
    try:
        token = jws.deserialize_compact(signature, key.key, registry=_OnlyThisKey(algorithms=key.algorithms))
    except (JoseError, ValueError, TypeError) as error:
        raise ForgedError("bad_signature", "the signature is not this key's") from error
    try:
        return Claims.model_validate_json(token.payload)
    except ValidationError as error:
        wrong = ", ".join(str(one["loc"][0]) for one in error.errors() if one["loc"])
        raise ForgedError("claim_missing", f"a claim is missing or of another form: {wrong or 'all of them'}") from None


def _check_meaning(claims: Claims, decided: ApprovalDecided, *, tenant: str, tool: str) -> None:
    try:
        meant = meant_by(decided, tenant=tenant, tool=tool)
    except ValueError as error:
        raise ForgedError("other_edit", "the edited arguments have no exact form", code="mismatch") from error
    for claim, value in meant.items():
        if getattr(claims, claim) != value:
            what = f"the signature is for another {_REASONS[claim].removeprefix('other_')}"
            raise ForgedError(_REASONS[claim], what, code="forbidden" if claim == "aud" else "mismatch")
