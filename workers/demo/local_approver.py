"""A key for whoever runs `sluice up`, and a policy that knows it: what they decide is signed without their doing anything."""

import getpass
from pathlib import Path
from typing import Final

from infra.identity.signing import add_to_set, new_key, write_private
from infra.local.folders import writable_folder

KEY_FILE: Final = "approver.jwk"
KEY_SET: Final = "approvers.jwks.json"
POLICY_FILE: Final = "policy.toml"
POLICY: Final = f"""# Written once by `sluice up`, and yours to change: workers read it when they start.
# No rule fits: every call is asked as its tool declares. Decisions must be signed with a key of {KEY_SET};
# `sluice approvals keygen --person mia --role lead --out mia.jwk --add-to {KEY_SET}` makes one more.

[tenants."*"]
keys = "{KEY_SET}"
"""


def local_approver(data_dir: Path) -> dict[str, str]:
    """The settings of a data folder for one person at one machine. What is there already stays as it is.

    Raises:
        ConfigError: The folder cannot be written.
    """
    folder = writable_folder(data_dir, setting="data_dir")
    key_file, policy_file = folder / KEY_FILE, folder / POLICY_FILE
    if not key_file.exists():
        key = new_key(getpass.getuser(), ())
        add_to_set(folder / KEY_SET, key)
        write_private(key_file, key)
    if not policy_file.exists():
        policy_file.write_text(POLICY)
    return {"policy_file": str(policy_file), "approver_key": str(key_file)}
