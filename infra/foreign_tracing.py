"""Tracing that somebody else's library would start: LangChain sends every prompt and answer to LangSmith when a variable says so.

A worker does not start with it unless inputs and outputs are hidden; then what LangSmith's own switches leave out (the texts of
exceptions, metadata) is redacted too (P11).
"""

from collections.abc import Mapping
from typing import Any, Final

from infra.redaction import Redactor, guarded, redacted_value
from infra.settings import read_inherited
from topics.errors import ConfigError

# As langsmith 0.15 reads them: the first of a row that is set decides.
_SWITCHES: Final = (("LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING_V2"), ("LANGSMITH_TRACING", "LANGCHAIN_TRACING"))
_HIDES: Final = (("LANGSMITH_HIDE_INPUTS", "LANGCHAIN_HIDE_INPUTS"), ("LANGSMITH_HIDE_OUTPUTS", "LANGCHAIN_HIDE_OUTPUTS"))
_OTHERS: Final = ("LANGCHAIN_WANDB_TRACING", "LANGCHAIN_COMET_TRACING", "LANGCHAIN_HANDLER")  # none of them can hide anything
VARIABLES: Final = (*(name for row in (*_SWITCHES, *_HIDES) for name in row), *_OTHERS)
"""Every variable that decides."""

_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def switched_on(found: Mapping[str, str]) -> str | None:
    """The variable that switches tracing on, or None. What a library does not read as yes is read so here, where it is meant so."""
    for name in _OTHERS:
        if not _is_off(found.get(name, "")):
            return name
    for row in _SWITCHES:
        decides = next((name for name in row if found.get(name, "").strip()), None)
        if decides is not None:
            return None if _is_off(found[decides]) else decides
    return None


def is_hidden(found: Mapping[str, str]) -> bool:
    """Whether LangSmith gets neither inputs nor outputs. It reads nothing but `true` as yes."""
    return all(next((found[name] for name in row if found.get(name, "").strip()), "") == "true" for row in _HIDES)


def refuse_foreign_tracing(found: Mapping[str, str], *, is_active: bool = False) -> str | None:
    """Refuse what would send prompts and answers to somebody else.

    Args:
        found: The variables, as they are set.
        is_active: Whether a library says that it traces, whoever told it to.
    Returns:
        What hides it, when it is on and hidden; None when nothing is on.
    Raises:
        ConfigError: It is on, and not hidden. The sentence says what to change.
    """
    name = switched_on(found)
    if name in _OTHERS:
        raise ConfigError(f"{name} sends every prompt and answer to somebody else, and cannot hide them: unset it")
    if name is None and not is_active:
        return None
    if not is_hidden(found):
        raise ConfigError(
            f"{name or 'a library'} switches LangSmith tracing on, which sends every prompt and answer there: unset it, "
            "or set LANGSMITH_HIDE_INPUTS=true and LANGSMITH_HIDE_OUTPUTS=true (SLUICE_OTLP_ENDPOINT traces without texts)"
        )
    return f"{name or 'a library'} traces to LangSmith, without inputs and outputs, and redacted"


def check_foreign_tracing(redactor: Redactor) -> str | None:
    """Refuse it or redact it, before the first run, and when all code is loaded: that may have switched it on too.

    Raises:
        ConfigError: See `refuse_foreign_tracing`.
    """
    from langsmith import utils  # noqa: PLC0415 -- a quarter of a second, for workers alone

    is_active = bool(utils.tracing_is_enabled())  # pyright: ignore[reportUnknownMemberType] -- a bare dict there
    warning = refuse_foreign_tracing(read_inherited(VARIABLES), is_active=is_active)
    if warning:
        redact_foreign_tracing(redactor)
    return warning


def redact_foreign_tracing(redactor: Redactor) -> None:
    """Redact what LangSmith's client sends beside inputs and outputs: exceptions, which quote both, and metadata."""
    from langsmith import Client  # noqa: PLC0415 -- as above
    from langsmith.run_trees import configure  # noqa: PLC0415 -- as above

    guard = guarded(redactor)

    def anonymize(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: _anonymous(name, value, guard) for name, value in fields.items()}

    configure(client=Client(anonymizer=anonymize, hide_inputs=True, hide_outputs=True))


def _anonymous(name: str, value: Any, redactor: Redactor) -> Any:
    """An exception is reduced to its type: its text and traceback may quote what no pattern knows."""
    if name == "error" and isinstance(value, str):
        return redactor(value.partition("(")[0][:100])
    return redacted_value(value, redactor)


def _is_off(value: str) -> bool:
    return value.strip().lower() in _OFF
