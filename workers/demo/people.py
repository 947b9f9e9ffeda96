"""The people of the demo, each with a key of their own: what they decide is signed, and no worker could."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.identity.signing import ApproverKey, add_to_set, new_key
from topics.events import Terms

ROLES: Final[Mapping[str, tuple[str, ...]]] = {"mia": ("agent",), "leo": ("agent", "lead"), "zoe": ("lead",)}
POLICY: Final = Path(__file__).with_name("policy.toml")
KEY_SET: Final = "people.jwks.json"
UNSIGNED: Final = Path(__file__).with_name("unsigned.toml")
"""The policy of stories and benches: whoever can write a decision is believed."""


@dataclass(frozen=True, slots=True)
class People:
    """Who decides, and the policy that says so."""

    policy_file: Path
    roles: Mapping[str, tuple[str, ...]]
    keys: Mapping[str, ApproverKey]

    def who_may(self, terms: Terms) -> list[str]:
        """Whom a policy's terms call upon, as many as they want."""
        able = [person for person, roles in self.roles.items() if not terms.roles or not set(roles).isdisjoint(terms.roles)]
        return able[: terms.quorum]


def hire(folder: Path, *, roles: Mapping[str, tuple[str, ...]] = ROLES, policy: str | None = None) -> People:
    """Make everybody a key, and lay the policy and the public keys (`people.jwks.json`) side by side into a folder.

    Args:
        policy: The policy file's text; the demo's when left out.

    Raises:
        ConfigError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    policy_file = folder / POLICY.name
    policy_file.write_text(POLICY.read_text() if policy is None else policy)
    keys = {person: new_key(person, own) for person, own in roles.items()}
    for key in keys.values():
        add_to_set(folder / KEY_SET, key)
    return People(policy_file, roles, keys)
