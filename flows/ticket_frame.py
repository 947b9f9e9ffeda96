"""How a ticket stands in a prompt: between tags that its own text cannot close."""

import re
from typing import Final

from flows.tokens import clip

TICKET: Final = "<ticket>\n<title>{title}</title>\n<body>{body}</body>\n</ticket>"
_TAGS: Final = re.compile(r"</?\s*(?:ticket|title|body)\s*>", re.IGNORECASE)


def bare(text: str, max_tokens: int) -> str:
    """A stranger's text without the tags that frame it, and no longer than `max_tokens`."""
    # Not with nothing in their place: what stands around a tag could close up to another one.
    return clip(_TAGS.sub("…", text), max_tokens)
