"""What tells one wording of the agent's prompt from another, so that what people decide can be counted by it."""

import hashlib
from functools import lru_cache

from flows import prompts


@lru_cache(maxsize=1024)
def prompt_version_of(instructions: str) -> str:
    """The version of a prompt with a toolset's instructions: 8 hex digits, which change with any word of it."""
    return hashlib.sha256(prompts.system_prompt(instructions).encode()).hexdigest()[:8]
