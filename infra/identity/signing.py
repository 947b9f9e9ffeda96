"""Private keys, and signing with them: for whoever decides. A worker never imports this, so it can never say yes itself."""

import json
import os
import secrets
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey
from joserfc.jws import JWSRegistry

from infra.identity.key_sets import SECRET_PARTS, PublicKey, parse_key_set, public_key
from infra.identity.tokens import Claims, meant_by
from topics.errors import ConfigError
from topics.events import ApprovalDecided

SIGNED_FOR_S: Final = 900


class _Algorithms(JWSRegistry):
    """Every algorithm by its name: which one is used is the key's, not the caller's."""

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


@dataclass(frozen=True, slots=True)
class ApproverKey:
    """A private key and whose it is."""

    key: OKPKey | ECKey
    public: PublicKey
    entry: dict[str, Any]

    @property
    def person(self) -> str:
        """Who decides with it; for an issuer's key, nobody in particular."""
        return self.public.person or ""

    def sign(
        self, decided: ApprovalDecided, *, tenant: str, tool: str, now: datetime, life_s: int = SIGNED_FOR_S
    ) -> ApprovalDecided:
        """The decision with this key's word for it, good for `life_s` seconds and for one use."""
        meant = cast("dict[str, Any]", meant_by(decided, tenant=tenant, tool=tool))
        issued_at = int(now.timestamp())
        claims = Claims(sub=self.person, iat=issued_at, exp=issued_at + life_s, jti=secrets.token_urlsafe(18), **meant)
        return decided.model_copy(update={"signature": self.token(claims.model_dump(exclude_none=True, exclude={"roles"}))})

    def token(self, claims: dict[str, Any]) -> str:
        """Claims as a compact JWS."""
        header = {"alg": self.public.algorithms[0], "kid": self.public.key_id}
        return jws.serialize_compact(header, json.dumps(claims).encode(), self.key, registry=_Algorithms())


def new_key(person: str, roles: tuple[str, ...], *, key_id: str | None = None) -> ApproverKey:
    """A fresh Ed25519 key of one person.

    Raises:
        ConfigError: A name is empty or too long.
    """
    key = OKPKey.generate_key("Ed25519")
    name = key_id or f"{person}-{secrets.token_hex(4)}"
    about = {"kid": name, "alg": "EdDSA", "use": "sig", "person": person, "roles": list(roles)}
    return _approver_key({**cast("dict[str, Any]", key.as_dict(private=True)), **about}, where="the new key")


def write_private(path: Path, key: ApproverKey) -> None:
    """Write a key where only its owner can read it.

    Raises:
        ConfigError: There is a file already, or it cannot be written. Nothing was overwritten.
    """
    text = json.dumps({**key.entry, **_secret_of(key)}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already; a key is never overwritten") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def read_private(path: Path) -> ApproverKey:
    """Read a key that `write_private` wrote.

    Raises:
        ConfigError: It is not there, others can read it, or it is no private key.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(65_536)
    except OSError as error:
        raise ConfigError(f"the approver's key {path} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"others can read the approver's key {path}: chmod 600 {path}")
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON") from error
    return _approver_key(found, where=str(path))


def add_to_set(path: Path, key: ApproverKey) -> None:
    """Put the public half into a tenant's key set, in one step for whoever reads it meanwhile.

    Raises:
        ConfigError: The set cannot be read or written, or has the `kid` already. It is as it was.
    """
    try:
        found: Any = json.loads(path.read_bytes()) if path.exists() else {"keys": []}
        entries = [*found["keys"], key.entry]
        text = json.dumps({"keys": entries}, indent=2) + "\n"
        parse_key_set(text.encode(), name=str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        beside.write_text(text)
        beside.replace(path)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"the key set {path} cannot be changed: {error}") from error


def _approver_key(found: Any, *, where: str) -> ApproverKey:
    if not isinstance(found, dict) or "d" not in found:
        raise ConfigError(f"{where}: no private key (a JWK with `d`)")
    raw = cast("dict[str, Any]", found)
    entry = {name: value for name, value in raw.items() if name not in SECRET_PARTS}
    public = public_key(entry, where=where)
    material: Any = {name: raw[name] for name in ("kty", "crv", "x", "y", "d") if name in raw}
    try:
        key = OKPKey.import_key(material) if raw["kty"] == "OKP" else ECKey.import_key(material)
        key.private_key  # noqa: B018 -- a broken one is refused here
    except (JoseError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: no usable private key ({type(error).__name__})") from None
    return ApproverKey(key, public, entry)


def _secret_of(key: ApproverKey) -> dict[str, Any]:
    return {"d": cast("dict[str, Any]", key.key.as_dict(private=True))["d"]}
