"""What gives a secret away, and how it begins: the forms of keys, tokens, private keys and card numbers. Pure."""

import re
from dataclasses import dataclass
from typing import Final


def prefixes(*parts: str, last: str = "") -> str:
    """A pattern of everything that a text of these parts may begin with, at the end of the text."""
    pattern = last
    for part in reversed(parts):
        pattern = f"{part}(?:{pattern})?" if pattern else part
    return rf"{pattern}\Z"


@dataclass(frozen=True, slots=True)
class SecretForm:
    """`parts` and `least` characters of `chars` give one away; `rest` goes with it."""

    parts: tuple[str, ...]
    chars: str
    least: int
    rest: str

    def whole(self) -> str:
        """What is enough of one."""
        return f"{''.join(self.parts)}{self.chars}{{{self.least}}}"

    def start(self) -> str:
        """What may become one, at the end of a text."""
        return prefixes(*self.parts, last=f"{self.chars}{{0,{self.least - 1}}}")


_KEY: Final = "[A-Za-z0-9_-]"
_TOKEN: Final = r"[A-Za-z0-9._~+/=-]"  # noqa: S105 -- characters
SECRETS: Final = {
    "sk": SecretForm(("s", "k", "[-_]"), _KEY, 16, _KEY),
    "aws": SecretForm(("A", "[KS]", "I", "A"), "[0-9A-Z]", 16, "[0-9A-Z]"),
    "google": SecretForm(("A", "I", "z", "a"), _KEY, 30, _KEY),
    "github": SecretForm(("g", "h", "[pousr]", "_"), "[A-Za-z0-9]", 20, "[A-Za-z0-9]"),
    "pat": SecretForm(tuple("github_pat_"), _KEY, 20, _KEY),
    "slack": SecretForm(("x", "o", "x", "[abeprs]", "-"), _KEY, 10, _KEY),
    "bearer": SecretForm(("[Bb]", "[Ee]", "[Aa]", "[Rr]", "[Ee]", "[Rr]", " "), _TOKEN, 20, _TOKEN),
    # Two letters and a brace in base64: whatever it signs, it is a JSON object that was not meant to be read.
    "jwt": SecretForm(("e", "y", "J"), _KEY, 17, r"[A-Za-z0-9_.=-]"),
}
PEM: Final = "-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
# With the end of the same kind, and no other key's beginning or end between.
PEM_WHOLE: Final = re.compile(
    r"-----BEGIN (?P<what>[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?)-----(?s:(?!-----(?:BEGIN|END) ).)*+-----END (?P=what)-----"
)
# Without its end. The lines may be quoted, written with escapes as in JSON, or begin with headers of their own.
PEM_LINES: Final = re.compile(
    rf"{PEM}(?:(?:[\s>]|\\[nr]|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]{{0,200}})*+[A-Za-z0-9+/=]{{16,}}+)*+"
)
PEM_END: Final = re.compile("-----END [A-Z0-9 ]{0,40}-----")
PEM_TAIL: Final = 64
PEM_START: Final = prefixes("-", "-", "-", "-", "-", "B", "E", "G", "I", "N", " ", last="[A-Z0-9 ]{0,48}-{0,4}")
CARD: Final = "[2-6](?:[ -]?[0-9]){12,30}"
CARD_START: Final = r"[2-6](?:[ -]?[0-9]){0,30}[ -]?\Z"
CARD_GOES_ON: Final = re.compile(r"[ -]?\Z")
CARD_DIGITS: Final = range(13, 20)
# How any of them begins, to see at once that a text has none.
HINT: Final = re.compile("|".join((*("".join(secret.parts) for secret in SECRETS.values()), "-----BEGIN", CARD)))


def is_card_number(digits: str) -> bool:
    """Whether the last digit is the check digit of the others. Source: ISO/IEC 7812-1, annex B."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0
