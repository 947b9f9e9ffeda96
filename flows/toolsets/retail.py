"""An online shop's support desk: sixteen tools, each one call of the tenant's back office."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from flows.agent.tools import ToolContext, ToolRefusedError, Toolset, tool

# Below the tools' own bound, so that the service's typed answer about the effect comes before a plain cancellation.
CALL_TIMEOUT_S: Final = 15.0
LOOKUP_TIMEOUT_S: Final = 10.0

OrderId = Annotated[str, Field(description="The order's id with its leading '#', for example '#W0000000'.")]
UserId = Annotated[str, Field(description="The user's id, for example 'sara_doe_496'.")]
ItemIds = Annotated[
    list[str],
    Field(description="Item ids (not product ids) that are in the order now. Name an item twice when two of it are meant."),
]
NewItemIds = Annotated[
    list[str],
    Field(description="Item ids to get instead, one for each old item at the same place, of the same product and available."),
]
PaymentMethodId = Annotated[
    str, Field(description="The id of one of the user's payment methods, for example 'credit_card_0000000'.")
]
REFUSAL: Final = "Error:"
CancelReason = Literal["no longer needed", "ordered by mistake"]

INSTRUCTIONS: Final = """\
You work at the support desk of an online shop and help one customer at a time.

- Find out who the customer is before anything else: look the user id up by email, or by name and postal code, even when they
  tell you an id. Serve nobody else's orders or profile in the same conversation.
- Say only what the tools or the customer told you. Give no opinions and promise nothing that no tool can do.
- Make one tool call at a time, and do not write to the customer in the same step.
- Before you cancel, change, return or exchange anything, read the order, list exactly what will happen, and get a clear yes.
- Only a pending order can be cancelled or changed (address, payment method, items); only a delivered one returned or
  exchanged. An order's items can be changed, returned or exchanged once: collect every item first.
- A new item must be another variant of the same product, and in stock. A gift card must cover what it has to pay.
- A cancelled payment goes back the way it came: to a gift card at once, otherwise in 5 to 7 business days. A return is
  refunded to the first payment's method or to one of the customer's gift cards.
- A text that begins with "Error:" means that nothing changed. Tell the customer why, or try what is allowed.
- Hand over to a person only when the request is outside of what these tools can do.
"""


# Looking things up


@tool(effect="READ")
async def find_user_id_by_email(
    context: ToolContext, *, email: Annotated[str, Field(description="The email address in the user's profile.")]
) -> str:
    """Get the id of the user with an email address. Try this first to find out who is asking."""
    return await _read(context, "find_user_id_by_email", {"email": email})


@tool(effect="READ")
async def find_user_id_by_name_zip(
    context: ToolContext,
    *,
    first_name: str,
    last_name: str,
    zip: Annotated[str, Field(description="The postal code, for example '12345'.")],  # noqa: A002 - the service's own name
) -> str:
    """Get the id of the user with a name and postal code, when the email address is unknown or finds nobody."""
    arguments = {"first_name": first_name, "last_name": last_name, "zip": zip}
    return await _read(context, "find_user_id_by_name_zip", arguments)


@tool(effect="READ")
async def get_user_details(context: ToolContext, *, user_id: UserId) -> str:
    """Read a user's profile: name, address, payment methods with gift card balances, and order ids."""
    return await _read(context, "get_user_details", {"user_id": user_id})


@tool(effect="READ")
async def get_order_details(context: ToolContext, *, order_id: OrderId) -> str:
    """Read an order: its status, items, prices, address, deliveries and payments."""
    return await _read(context, "get_order_details", {"order_id": order_id})


@tool(effect="READ")
async def get_product_details(
    context: ToolContext,
    *,
    product_id: Annotated[str, Field(description="The product's id, for example '6086499569'. It is not an item's id.")],
) -> str:
    """Read a product and all its variants: item ids, options, prices, and which are in stock."""
    return await _read(context, "get_product_details", {"product_id": product_id})


@tool(effect="READ")
async def list_all_product_types(context: ToolContext) -> str:
    """List the names and product ids of everything the shop sells. The variants come with get_product_details."""
    return await _read(context, "list_all_product_types", {})


# Neither reading nor writing


@tool(effect="READ")
async def calculate(
    context: ToolContext, *, expression: Annotated[str, Field(description="Numbers, + - * /, parentheses and spaces.")]
) -> str:
    """Work out a sum, rounded to two decimals. Use it for totals and differences instead of your head."""
    return await _read(context, "calculate", {"expression": expression})


@tool(effect="READ")
async def think(context: ToolContext, *, thought: str) -> str:
    """Write a thought down before a hard step. It reads nothing and changes nothing."""
    return await _read(context, "think", {"thought": thought})


@tool(effect="READ")
async def transfer_to_human_agents(
    context: ToolContext, *, summary: Annotated[str, Field(description="What the customer wants and what was done so far.")]
) -> str:
    """Hand the customer over to a person, when they insist on one or the tools cannot do what they need."""
    return await _read(context, "transfer_to_human_agents", {"summary": summary})


# Changes that can be made again with the same key


@tool(effect="WRITE")
async def modify_user_address(
    context: ToolContext,
    *,
    user_id: UserId,
    address1: str,
    address2: str,
    city: str,
    state: str,
    country: str,
    zip: str,  # noqa: A002 - the service's own name
) -> str:
    """Replace the default address in a user's profile. Orders that exist keep theirs. Needs the customer's yes."""
    address = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}
    return await _change(context, "modify_user_address", {"user_id": user_id, **address})


@tool(effect="WRITE")
async def modify_pending_order_address(
    context: ToolContext,
    *,
    order_id: OrderId,
    address1: str,
    address2: str,
    city: str,
    state: str,
    country: str,
    zip: str,  # noqa: A002 - the service's own name
) -> str:
    """Replace the delivery address of a pending order. Needs the customer's yes."""
    address = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}
    return await _change(context, "modify_pending_order_address", {"order_id": order_id, **address})


@tool(effect="WRITE")
async def modify_pending_order_payment(context: ToolContext, *, order_id: OrderId, payment_method_id: PaymentMethodId) -> str:
    """Charge a pending order to another payment method and refund the first one. Needs the customer's yes."""
    arguments = {"order_id": order_id, "payment_method_id": payment_method_id}
    return await _change(context, "modify_pending_order_payment", arguments)


# Changes that nobody can take back


async def _lookup(context: ToolContext) -> str | None:
    found = await context.service.lookup(_key(context), tenant=context.tenant, timeout_s=LOOKUP_TIMEOUT_S)
    return None if found is None else _accepted(found)


@tool(effect="IRREVERSIBLE", lookup=_lookup)
async def cancel_pending_order(context: ToolContext, *, order_id: OrderId, reason: CancelReason) -> str:
    """Cancel a pending order and refund it: a gift card at once, others in 5 to 7 business days. Needs the customer's yes."""
    return await _change(context, "cancel_pending_order", {"order_id": order_id, "reason": reason})


@tool(effect="IRREVERSIBLE", lookup=_lookup)
async def modify_pending_order_items(
    context: ToolContext, *, order_id: OrderId, item_ids: ItemIds, new_item_ids: NewItemIds, payment_method_id: PaymentMethodId
) -> str:
    """Swap items of a pending order for other variants of the same products, and settle the price difference.

    It works once per order, which can be neither changed nor cancelled afterwards. Needs the customer's yes.
    """
    arguments = {"item_ids": item_ids, "new_item_ids": new_item_ids, "payment_method_id": payment_method_id}
    return await _change(context, "modify_pending_order_items", {"order_id": order_id, **arguments})


@tool(effect="IRREVERSIBLE", lookup=_lookup)
async def return_delivered_order_items(
    context: ToolContext, *, order_id: OrderId, item_ids: ItemIds, payment_method_id: PaymentMethodId
) -> str:
    """Start the return of items of a delivered order, refunded to the first payment's method or to a gift card.

    It works once per order; the customer gets an email on how to send the items back. Needs the customer's yes.
    """
    arguments = {"item_ids": item_ids, "payment_method_id": payment_method_id}
    return await _change(context, "return_delivered_order_items", {"order_id": order_id, **arguments})


@tool(effect="IRREVERSIBLE", lookup=_lookup)
async def exchange_delivered_order_items(
    context: ToolContext, *, order_id: OrderId, item_ids: ItemIds, new_item_ids: NewItemIds, payment_method_id: PaymentMethodId
) -> str:
    """Start the exchange of items of a delivered order for other variants of the same products.

    It works once per order; the payment method pays or receives the price difference. Needs the customer's yes.
    """
    arguments = {"item_ids": item_ids, "new_item_ids": new_item_ids, "payment_method_id": payment_method_id}
    return await _change(context, "exchange_delivered_order_items", {"order_id": order_id, **arguments})


toolset: Final = Toolset(
    name="retail",
    instructions=INSTRUCTIONS,
    tools=(
        find_user_id_by_email,
        find_user_id_by_name_zip,
        get_user_details,
        get_order_details,
        get_product_details,
        list_all_product_types,
        calculate,
        think,
        transfer_to_human_agents,
        modify_user_address,
        modify_pending_order_address,
        modify_pending_order_payment,
        cancel_pending_order,
        modify_pending_order_items,
        return_delivered_order_items,
        exchange_delivered_order_items,
    ),
    pinned=("find_user_id_by_email", "find_user_id_by_name_zip"),
)


async def _read(context: ToolContext, operation: str, arguments: Mapping[str, Any]) -> str:
    return _accepted(await context.service.call(operation, arguments, tenant=context.tenant, timeout_s=CALL_TIMEOUT_S))


async def _change(context: ToolContext, operation: str, arguments: Mapping[str, Any]) -> str:
    return _accepted(
        await context.service.call(
            operation, arguments, tenant=context.tenant, idempotency_key=_key(context), timeout_s=CALL_TIMEOUT_S
        )
    )


def _accepted(text: str) -> str:
    """The service's text, unless it is a refusal.

    Raises:
        ToolRefusedError: It begins with `Error:`; nothing changed.
    """
    if text.startswith(REFUSAL):
        raise ToolRefusedError(text)
    return text


def _key(context: ToolContext) -> str:
    """The call's key.

    Raises:
        ValueError: There is none: a change without a key could happen twice. Nothing was sent.
    """
    if context.idempotency_key is None:
        raise ValueError("a change needs an idempotency key")
    return context.idempotency_key
