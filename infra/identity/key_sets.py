"""The public keys of a tenant: a JWKS file, read again when it changes, so that a key is revoked without a restart.

An entry is a JWK with `kid`, and either `person` and `roles` (the key is that person's), or `issuer: true` (an identity provider
signs, and its `sub` and `roles` are believed). Its algorithm is pinned by its curve: the header of a token has no say in it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from topics.errors import ConfigError, OutageError

# Ed25519 is EdDSA's new name where the curve is Ed25519 (RFC 9864); libraries write one or the other.
ALGORITHMS: Final = {("OKP", "Ed25519"): ("EdDSA", "Ed25519"), ("EC", "P-256"): ("ES256",)}
SECRET_PARTS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class Entry(BaseModel):
    """One key as it stands in the file."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    kid: str = Field(min_length=1, max_length=200)
    kty: str
    crv: str = ""
    alg: str | None = None
    use: str = "sig"
    person: str | None = Field(default=None, min_length=1, max_length=200)
    roles: list[str] = Field(default_factory=list[str])
    issuer: bool = False


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key, whose it is, and the only algorithms it may be used with. `person` is None for an issuer's key."""

    key: OKPKey | ECKey
    key_id: str
    algorithms: tuple[str, ...]
    person: str | None
    roles: frozenset[str]


KeySet = dict[str, PublicKey]


def parse_key_set(text: bytes, *, name: str) -> KeySet:
    """The keys in a JWKS, by `kid`.

    Raises:
        ConfigError: One sentence that names the file and the entry. No key material is quoted.
    """
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is no JSON") from error
    entries = cast("dict[str, Any]", found).get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f'{name} is no key set: it wants {{"keys": [...]}}')
    keys: KeySet = {}
    for place, entry in enumerate(cast("list[Any]", entries)):
        key = public_key(entry, where=f"{name}, key {place + 1}")
        if key.key_id in keys:
            raise ConfigError(f"{name}, key {place + 1}: kid {key.key_id!r} is there twice")
        keys[key.key_id] = key
    return keys


def public_key(entry: Any, *, where: str) -> PublicKey:
    """One key of a set.

    Raises:
        ConfigError: One sentence that begins with `where`.
    """
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: a key is a JSON object")
    raw = cast("dict[str, Any]", entry)
    if SECRET_PARTS & raw.keys():
        raise ConfigError(f"{where}: a private or shared key; a worker may only have public ones")
    try:
        said = Entry.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        raise ConfigError(f"{where}: {problems}") from None
    if (said.person is None) == (not said.issuer):
        raise ConfigError(f"{where}: a key is either a `person`'s, or an `issuer`'s")
    pinned = ALGORITHMS.get((said.kty, said.crv), ())
    allowed = tuple(one for one in pinned if said.alg in {None, one})
    if not allowed or said.use != "sig":
        raise ConfigError(f"{where}: only Ed25519 (EdDSA) and P-256 (ES256) keys for signatures are taken")
    try:
        key = OKPKey.import_key(_material(raw)) if said.kty == "OKP" else ECKey.import_key(_material(raw))
        key.public_key  # noqa: B018 -- a point that is not on its curve is refused here
    except (JoseError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: no usable key ({type(error).__name__})") from None
    return PublicKey(key, said.kid, allowed, said.person, frozenset(said.roles))


def _material(entry: dict[str, Any]) -> Any:
    return {name: entry[name] for name in ("kty", "crv", "x", "y") if name in entry}


@dataclass(slots=True)
class KeySetFile:
    """A key set on disk."""

    path: Path
    _seen: tuple[int, int, int] | None = None
    _keys: KeySet = field(default_factory=KeySet)

    def keys(self) -> KeySet:
        """The keys that are in it now.

        Raises:
            OutageError: It cannot be read, or not understood. Nothing is decided on keys that may have been revoked.
        """
        try:
            stat = self.path.stat()
            changed = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if changed != self._seen:
                self._keys = parse_key_set(self.path.read_bytes(), name=str(self.path))
                self._seen = changed
        except (OSError, ConfigError) as error:
            raise OutageError(f"the key set {self.path} cannot be used: {error}") from error
        return self._keys
