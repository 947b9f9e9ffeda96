"""What is being traced now: which span is the parent of what begins next, and of whom it is."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from infra.tracing import names
from topics.errors import SluiceError


class Price(Protocol):
    """What a model costs, in US cents for a million tokens."""

    @property
    def input_usd_cents(self) -> float:
        """For what is sent."""
        ...

    @property
    def output_usd_cents(self) -> float:
        """For what comes back."""
        ...


@dataclass(frozen=True, slots=True)
class Scope:
    """The innermost span. What `shared` holds is said of every span inside: the tenant above all.

    Args:
        prices: By the provider's name of a model; US cents for a million tokens.
        with_content: Whether spans may hold texts.
    """

    tracer: Tracer
    span: Span
    shared: Mapping[str, str] = field(default_factory=dict[str, str])
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    with_content: bool = False
    home: "Scope | None" = None

    @property
    def unit(self) -> "Scope":
        """The scope of the record that is being handled, however deep inside of it this one is."""
        return self.home or self

    def begin(self, name: str, attributes: Mapping[str, Any], *, kind: SpanKind = SpanKind.INTERNAL) -> "Scope":
        """A span inside of this one; its scope. Its owner ends it."""
        span = self.tracer.start_span(name, set_span_in_context(self.span), kind, {**self.shared, **attributes})
        return replace(self, span=span, home=self.unit)

    def sharing(self, attributes: Mapping[str, str]) -> "Scope":
        """The same, with these said of every span inside."""
        return replace(self, shared={**self.shared, **attributes}, home=self.unit) if attributes else self


_current: Final[ContextVar[Scope | None]] = ContextVar("sluice_scope", default=None)


def current() -> Scope | None:
    """The innermost scope of this task, or None where nothing is traced."""
    return _current.get()


def enter(scope: Scope) -> None:
    """Make it the parent of what begins next in this task. It is never left: a task ends, or enters another."""
    _current.set(scope)


@contextmanager
def entered(scope: Scope) -> Generator[None]:
    """The same for a block."""
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)


def fail(span: Span, error: BaseException) -> None:
    """Say that it failed, of which type, and what our own errors say. Other exceptions may quote anything."""
    reason = error.reason_code if isinstance(error, SluiceError) else None
    kind = type(error).__qualname__
    span.set_attribute(names.error_attributes.ERROR_TYPE, reason or kind)
    details = {names.exception_attributes.EXCEPTION_TYPE: f"{type(error).__module__}.{kind}"}
    if reason is not None:
        span.set_attribute(names.REASON, reason)
        details[names.exception_attributes.EXCEPTION_MESSAGE] = str(error)
    span.add_event("exception", details)
    span.set_status(Status(StatusCode.ERROR))
