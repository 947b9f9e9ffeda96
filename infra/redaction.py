"""Take personal data and secrets out of texts that leave for a log, a trace or a header. Pure.

It knows what has a form: addresses, numbers, keys. A name or a sentence has none, so whoever writes a log or a span leaves texts
out in the first place; this is the second line.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from topics.errors import ConfigError

FAILED: Final = "[redaction failed]"
MAX_CHARS: Final = 100_000  # of one text; what is longer belongs in no log, and would be slow to search

Redactor = Callable[[str], str]

_PASSES: Final = 5  # a text has settled after two or three; each marker may uncover what stood against it
_TOKEN: Final = r"[A-Za-z0-9._~+/=-]"  # noqa: S105 -- characters
_WORDS: Final = r"api[ _-]?key|access[ _-]?key|secret|token|passw(?:or)?d|passphrase|credentials?"

_SECRETS: Final = (
    re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,30}-----|\Z)", re.DOTALL),
    re.compile(rf"\b(?:bearer|basic|digest)\s+{_TOKEN}{{6,4096}}", re.IGNORECASE),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,8192}(?:\.[A-Za-z0-9_-]{0,8192}){0,4}"),
    re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{6,512}"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abeprs]-)[A-Za-z0-9_-]{8,512}"),
    re.compile(r"\bA[KS]IA[0-9A-Z]{12,64}\b|\bAIza[A-Za-z0-9_-]{20,64}"),
    # The mark may stand in JSON or a query, so between the name and its value there are quotes, a colon or an equals sign.
    re.compile(r"(?<=://)[^\s/@\[\]]{1,256}:[^\s/@\[\]]{1,256}(?=@)"),
    re.compile(rf"(?:{_WORDS})\b[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?[^\s\"'\[\],;&<>]{{3,4096}}", re.IGNORECASE),
)
_EMAIL: Final = re.compile(r"[\w.!#$%&'*+/?^`{|}~-]{1,64}(?:@|%40|\\u0040)[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_IBAN: Final = re.compile(r"(?<![\w-])[A-Za-z]{2}\d{2}(?:[ \u00a0-]?[A-Za-z0-9]){10,30}(?!\w)")
_CARD: Final = re.compile(r"(?<![\w.-])[2-6]\d(?:[ \u00a0-]?\d){11,17}(?![\w-])")
# A record's key or a link may stand before it, `acme/` or `tel:`; a digit and a slash before it make it a part of something else.
_PHONE: Final = re.compile(
    r"(?:"
    r"(?<![\w+-])\+\d(?:[ \u00a0()./-]{0,2}\d){6,14}"  # +49 151 0000000
    r"|(?<![\w.:+-])(?<!\d/)(?:"
    r"\(?0\d{1,5}\)?[ \u00a0/-]{1,2}\d(?:[ \u00a0/-]?\d){4,10}"  # 0151 0000000
    r"|\(?\d{3}\)?[ \u00a0.-]\d{3}[ \u00a0.-]\d{4}"  # (555) 555-0100
    r"))(?![\w-])"
)
_MAYBE: Final = re.compile(r"[@:=\d]|bearer|basic|digest|eyJ|[spr]k[-_]|aiza|a[ks]ia|key|gh._|pat[-_]|hf_|xox", re.IGNORECASE)


def redact(text: str) -> str:
    """Put markers in the places of email addresses, phone, account and card numbers, and secrets. Twice is the same as once."""
    text = text[:MAX_CHARS]
    if not _MAYBE.search(text):
        return text
    for _ in range(_PASSES):
        before, text = text, _once(text)
        if text == before:
            break
    return text


def guarded(redactor: Redactor = redact) -> Redactor:
    """A redactor that never raises and lets nothing through when it fails: `FAILED` takes the text's place."""

    def guard(text: str) -> str:
        try:
            redacted = redactor(text)
        except Exception:  # noqa: BLE001 -- whatever failed, the raw text must not be what leaves
            return FAILED
        return redacted if isinstance(redacted, str) else FAILED  # pyright: ignore[reportUnnecessaryIsInstance] -- an operator's own

    return guard


def load_redactor(path: str) -> Redactor:
    """The built-in redactor, and behind it an operator's own, `package.module:function`, when there is a path. It never raises.

    Raises:
        ConfigError: There is no such function.
    """
    if not path:
        return guarded()
    module, _, name = path.partition(":")
    try:
        own: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"SLUICE_REDACTOR {path!r} cannot be loaded: {type(error).__name__}") from error
    if not callable(own):
        raise ConfigError(f"SLUICE_REDACTOR {path!r} is no function")
    function = cast("Redactor", own)
    return guarded(lambda text: function(redact(text)))


def redacted_value(value: Any, redactor: Redactor) -> Any:
    """The same with every text in lists and mappings redacted, keys included; numbers and None stay, other objects become text."""
    if isinstance(value, str):
        return redactor(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redactor(str(key)): redacted_value(one, redactor) for key, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [redacted_value(one, redactor) for one in cast("Sequence[Any]", value)]
    return redactor(str(value))


def _once(text: str) -> str:
    for pattern in _SECRETS:
        text = pattern.sub("[secret]", text)
    text = _EMAIL.sub("[email]", text)
    text = _IBAN.sub(_iban, text)
    text = _CARD.sub(_card, text)
    return _PHONE.sub("[phone]", text)


def _iban(found: re.Match[str]) -> str:
    """As people write it, in capitals or groups; in other forms only with the right check digits, since ids look like that."""
    text = found.group()
    plain = re.sub(r"[ \u00a0-]", "", text)
    is_written = "-" not in text and text[:2].isupper() and sum(one.isdigit() for one in plain) >= 8
    return "[iban]" if is_written or _has_check_digits(plain) else text


def _has_check_digits(plain: str) -> bool:
    if not plain.isascii():
        return False
    turned = plain[4:] + plain[:4]
    return len(plain) >= 15 and int("".join(str(int(one, 36)) for one in turned)) % 97 == 1


def _card(found: re.Match[str]) -> str:
    digits = [int(one) for one in found.group() if one.isdigit()]
    doubled = [sum(divmod(2 * one, 10)) for one in digits[-2::-2]]
    return "[card]" if (sum(doubled) + sum(digits[-1::-2])) % 10 == 0 else found.group()
