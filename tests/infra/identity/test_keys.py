"""Keys on disk: what is taken, what is refused in one sentence, and that a secret stays one."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from infra.identity.key_sets import parse_key_set
from infra.identity.signing import add_to_set, new_key, read_private, write_private
from tests.infra.identity.deeds import ec_entry, issuer_entry, mia
from topics.errors import ConfigError

MIA = mia()


def problem(*entries: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_key_set(json.dumps({"keys": list(entries)}).encode(), name="acme.jwks.json")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (7, "key 1: a key is a JSON object"),
        ({**MIA.entry, "d": "x"}, "a private or shared key"),
        ({**OctKey.generate_key(256).as_dict(), "kid": "k", "person": "mia"}, "a private or shared key"),
        ({**RSAKey.generate_key(2048).as_dict(private=False), "kid": "k", "person": "mia"}, "only Ed25519"),
        ({**ECKey.generate_key("P-384").as_dict(private=False), "kid": "k", "person": "mia"}, "only Ed25519"),
        ({**MIA.entry, "alg": "ES256"}, "only Ed25519"),
        ({**MIA.entry, "use": "enc"}, "only Ed25519"),
        ({**MIA.entry, "x": "AAAA"}, "no usable key"),
        ({**ec_entry()[1], "x": "A" * 43}, "no usable key"),
        ({**MIA.entry, "kid": ""}, "kid: "),
        ({**MIA.entry, "roles": "refunds"}, "roles: "),
        ({**MIA.entry, "issuer": True}, "either a `person`'s, or an `issuer`'s"),
        ({name: value for name, value in MIA.entry.items() if name != "person"}, "either a `person`'s"),
    ],
)
def test_a_key_that_cannot_be_trusted_is_named(entry: Any, says: str):
    assert says in problem(entry)
    assert problem(MIA.entry, entry).startswith("acme.jwks.json, key 2: ")


def test_a_key_id_names_one_key():
    assert "kid 'mia-1' is there twice" in problem(MIA.entry, MIA.entry)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"keys": {}}', "7", "[" * 100_000])
def test_a_file_that_is_no_key_set_is_told(text: str):
    with pytest.raises(ConfigError, match=r"acme\.jwks\.json is no"):
        parse_key_set(text.encode(), name="acme.jwks.json")


def test_a_set_holds_persons_and_issuers():
    found = parse_key_set(json.dumps({"keys": [MIA.entry, {**issuer_entry(MIA), "kid": "idp"}]}).encode(), name="x")
    assert [(key.person, sorted(key.roles)) for key in found.values()] == [("mia", ["refunds"]), (None, [])]


def test_a_private_key_is_its_owner_s_alone_and_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "keys" / "mia.jwk"
    write_private(path, MIA)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_private(path).entry == MIA.entry
    with pytest.raises(ConfigError, match="never overwritten"):
        write_private(path, new_key("joe", ()))
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_private(path)


@pytest.mark.parametrize(("text", "says"), [("{", "no JSON"), ("[]", "no private key"), (json.dumps(MIA.entry), "no private key")])
def test_what_is_no_private_key_is_told_without_its_content(tmp_path: Path, text: str, says: str):
    path = tmp_path / "mia.jwk"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=says):
        read_private(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_private(tmp_path / "nowhere.jwk")


def test_the_public_half_is_added_whole_or_not_at_all(tmp_path: Path):
    path, joe = tmp_path / "acme.jwks.json", new_key("joe", ("treasury",))
    add_to_set(path, MIA)
    add_to_set(path, joe)
    assert list(parse_key_set(path.read_bytes(), name="x")) == ["mia-1", joe.public.key_id]
    assert '"d"' not in path.read_text()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is there twice"):
        add_to_set(path, MIA)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])
