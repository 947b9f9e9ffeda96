"""The shop's tools: their classes, what they send, and that the model's view fits the published one."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from flows.agent.tools import Tool, ToolContext, ToolRefusedError
from flows.ports import Retriever, ToolService
from flows.toolsets.retail import CALL_TIMEOUT_S, toolset
from infra.http_service import HttpToolService, open_client
from infra.local.back_office.retail import OPERATIONS
from infra.local.back_office.server import running
from infra.local.data import datasets
from tests.fakes.shop import AWAY

WRITES = {"modify_user_address", "modify_pending_order_address", "modify_pending_order_payment"}
IRREVERSIBLE = {
    "cancel_pending_order",
    "modify_pending_order_items",
    "return_delivered_order_items",
    "exchange_delivered_order_items",
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "find_user_id_by_email": {"email": "ann@example.com"},
    "find_user_id_by_name_zip": {"first_name": "Ann", "last_name": "Bell", "zip": "LS1"},
    "get_user_details": {"user_id": "ann"},
    "get_order_details": {"order_id": "#P1"},
    "get_product_details": {"product_id": "mug"},
    "list_all_product_types": {},
    "calculate": {"expression": "1 + 1"},
    "think": {"thought": "hm"},
    "transfer_to_human_agents": {"summary": "wants a person"},
    "modify_user_address": {"user_id": "ann", **AWAY},
    "modify_pending_order_address": {"order_id": "#P1", **AWAY},
    "modify_pending_order_payment": {"order_id": "#P1", "payment_method_id": "gift"},
    "cancel_pending_order": {"order_id": "#P1", "reason": "ordered by mistake"},
    "modify_pending_order_items": {
        "order_id": "#P1",
        "item_ids": ["red"],
        "new_item_ids": ["blue"],
        "payment_method_id": "card",
    },
    "return_delivered_order_items": {"order_id": "#D1", "item_ids": ["red"], "payment_method_id": "card"},
    "exchange_delivered_order_items": {
        "order_id": "#D1",
        "item_ids": ["red"],
        "new_item_ids": ["blue"],
        "payment_method_id": "card",
    },
}

each_tool = pytest.mark.parametrize("tool", toolset.tools, ids=lambda tool: tool.name)


class RecordingService:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], str, str | None]] = []
        self.lookups: list[tuple[str, str]] = []

    async def call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        *,
        tenant: str,
        idempotency_key: str | None = None,
        timeout_s: float = 20.0,
    ) -> str:
        assert timeout_s == CALL_TIMEOUT_S
        self.calls.append((operation, dict(arguments), tenant, idempotency_key))
        return "done"

    async def lookup(self, idempotency_key: str, *, tenant: str, timeout_s: float = 10.0) -> str | None:
        assert timeout_s > 0
        self.lookups.append((idempotency_key, tenant))
        return "it ran"


def context(service: ToolService, *, tenant: str = "acme", key: str | None = "k") -> ToolContext:
    return ToolContext(tenant=tenant, user_id="ann", idempotency_key=key, service=service, retriever=cast("Retriever", None))


@each_tool
async def test_a_tool_is_one_call_with_the_tenant_and_a_key_when_it_changes_something(tool: Tool) -> None:
    service = RecordingService()
    arguments = EXAMPLES[tool.name]
    assert await tool.run(context(service), tool.arguments.model_validate(arguments).model_dump()) == "done"
    assert service.calls == [(tool.name, arguments, "acme", None if tool.effect == "READ" else "k")]


@each_tool
def test_a_tool_takes_what_the_back_office_takes(tool: Tool) -> None:
    assert OPERATIONS[tool.name].check(EXAMPLES[tool.name]) == EXAMPLES[tool.name]
    assert OPERATIONS[tool.name].mutates == (tool.effect != "READ")


@each_tool
def test_a_tool_fits_its_published_function(tool: Tool) -> None:
    published = {spec["function"]["name"]: spec["function"]["parameters"] for spec in datasets.retail_tools()}[tool.name]
    parameters = tool.schema()["function"]["parameters"]
    assert set(parameters["properties"]) == set(published["properties"])
    assert set(parameters.get("required", [])) == set(published["required"])
    for name, schema in published["properties"].items():
        assert parameters["properties"][name]["type"] == schema["type"]
        assert parameters["properties"][name].get("enum") == schema.get("enum")


def test_every_published_tool_is_there() -> None:
    assert set(toolset.by_name) == set(OPERATIONS) == set(EXAMPLES)


@each_tool
def test_a_tool_has_its_class_and_asks_when_it_changes_something(tool: Tool) -> None:
    expected = "WRITE" if tool.name in WRITES else "IRREVERSIBLE" if tool.name in IRREVERSIBLE else "READ"
    assert tool.effect == expected
    assert tool.asks == (expected != "READ")
    assert (tool.lookup is not None) == (expected == "IRREVERSIBLE")
    assert tool.timeout_s > CALL_TIMEOUT_S


@pytest.mark.parametrize("name", sorted(IRREVERSIBLE))
async def test_a_look_up_asks_for_the_calls_own_key_and_tenant(name: str) -> None:
    service = RecordingService()
    lookup = toolset.by_name[name].lookup
    assert lookup is not None
    assert await lookup(context(service)) == "it ran"
    assert service.lookups == [("k", "acme")]


@pytest.mark.parametrize("name", sorted(WRITES | IRREVERSIBLE))
async def test_a_change_without_a_key_is_never_sent(name: str) -> None:
    service = RecordingService()
    with pytest.raises(ValueError, match="idempotency key"):
        await toolset.by_name[name].run(context(service, key=None), EXAMPLES[name])
    assert service.calls == []


@pytest.mark.parametrize(
    "arguments", [{"order_id": "#P1", "reason": "bored"}, {"order_id": 1, "reason": "ordered by mistake"}, {"tenant": "x"}]
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        toolset.by_name["cancel_pending_order"].arguments.model_validate(arguments)


def test_each_task_of_the_data_set_fits_the_tools() -> None:
    for task in datasets.retail_tasks("test"):
        for action in task.actions:
            toolset.by_name[action.name].arguments.model_validate(action.arguments)


async def test_tasks_done_with_the_tools_over_http_end_as_the_data_set_says(tmp_path: Path) -> None:
    tasks = datasets.retail_tasks("test")[:12]
    async with running(tmp_path, seed=datasets.retail_seed()) as url, open_client() as client:
        service = HttpToolService(url, client)
        for task in tasks:
            for number, action in enumerate(task.actions):
                tool = toolset.by_name[action.name]
                key = None if tool.effect == "READ" else f"{task.task_id}/{number}"
                with suppress(ToolRefusedError):  # the data set has calls that the shop refuses
                    await tool.run(context(service, tenant=task.task_id, key=key), action.arguments)
            changes = (await client.get(f"{url}/v1/{task.task_id}/changes")).json()
            assert [(row["table"], row["key"]) for row in changes] == sorted(
                (change.table, change.key) for change in task.expected_changes
            )
            statuses = {row["key"]: row["after"].get("status") for row in changes}
            assert statuses == {change.key: change.after.get("status") for change in task.expected_changes}


async def test_a_refusal_is_told_apart_from_a_result_also_when_it_is_looked_up(tmp_path: Path) -> None:
    """P2: an effect left in doubt must not be reported as done when the shop had refused it."""
    async with running(tmp_path, seed=datasets.retail_seed()) as url, open_client() as client:
        own = context(HttpToolService(url, client), tenant="acme", key="k1")
        cancel = toolset.by_name["cancel_pending_order"]
        with pytest.raises(ToolRefusedError, match="Error:"):
            await cancel.run(own, {"order_id": "#W0000000", "reason": "no longer needed"})
        assert cancel.lookup is not None
        with pytest.raises(ToolRefusedError, match="Error:"):
            await cancel.lookup(own)
