"""A back office in memory that counts what the outside world would see."""

from collections.abc import Callable, Mapping
from typing import Any


class FakeToolService:
    """`effects` are the operations that took place. A key that came before gives its first result and no second effect.

    With `honours_keys=False` it is a service without idempotency: every call is an effect.
    """

    def __init__(self, *, honours_keys: bool = True) -> None:
        self.effects: list[tuple[str, str, dict[str, Any]]] = []
        self.results: dict[tuple[str, str], str] = {}
        self.honours_keys = honours_keys
        self.before_effect: Callable[[str], None] = lambda _operation: None
        self.after_effect: Callable[[str], None] = lambda _operation: None
        self.lookups = 0

    async def call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        *,
        tenant: str,
        idempotency_key: str | None = None,
        timeout_s: float = 20.0,  # noqa: ARG002 the port's shape
    ) -> str:
        self.before_effect(operation)
        known = self.results.get((tenant, idempotency_key or ""))
        if known is not None and self.honours_keys:
            return known
        self.effects.append((tenant, operation, dict(arguments)))
        result = f"{operation} done"
        if idempotency_key is not None:
            self.results[tenant, idempotency_key] = result
        self.after_effect(operation)
        return result

    async def lookup(self, idempotency_key: str, *, tenant: str, timeout_s: float = 10.0) -> str | None:  # noqa: ARG002 the port's shape
        self.lookups += 1
        return self.results.get((tenant, idempotency_key))
