"""An online shop: orders, products, users, and the sixteen operations of its support desk.

Every function reads and puts rows of `Tables` and does nothing else. Money is in floats, as in the data set whose recorded
conversations these rules are checked against (tau-bench retail).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.local.back_office.arithmetic import evaluate
from infra.local.back_office.tables import Operation, RefusedError, Row, Tables, operation

CANCEL_REASONS: Final = ("no longer needed", "ordered by mistake")
PENDING: Final = "pending"
DELIVERED: Final = "delivered"


# Looking things up


def find_user_id_by_email(tables: Tables, *, email: str) -> str:
    """The id of the user with this address, whatever its case."""
    wanted = email.casefold()
    for user_id, user in tables.rows("users"):
        if user["email"].casefold() == wanted:
            return user_id
    raise RefusedError("user not found")


def find_user_id_by_name_zip(tables: Tables, *, first_name: str, last_name: str, zip: str) -> str:  # noqa: A002 - the wire's name
    """The id of the first user with this name, whatever its case, and postal code."""
    wanted = (first_name.casefold(), last_name.casefold(), zip)
    for user_id, user in tables.rows("users"):
        name = user["name"]
        if (name["first_name"].casefold(), name["last_name"].casefold(), user["address"]["zip"]) == wanted:
            return user_id
    raise RefusedError("user not found")


def get_user_details(tables: Tables, *, user_id: str) -> str:
    """A user's profile, with payment methods and order ids."""
    return json.dumps(_user(tables, user_id))


def get_order_details(tables: Tables, *, order_id: str) -> str:
    """An order with items, status and payments."""
    return json.dumps(_order(tables, order_id))


def get_product_details(tables: Tables, *, product_id: str) -> str:
    """A product with its variants."""
    return json.dumps(_found(tables.find("products", product_id), "product"))


def list_all_product_types(tables: Tables) -> str:
    """Product ids by name, in the order of the names."""
    return json.dumps(dict(sorted((product["name"], key) for key, product in tables.rows("products"))))


# Neither reading nor writing


def calculate(tables: Tables, *, expression: str) -> str:  # noqa: ARG001 - the shape of every operation
    """The value of a sum, to 2 decimals."""
    try:
        return str(evaluate(expression))
    except ValueError as error:
        raise RefusedError(str(error)) from error


def think(tables: Tables, *, thought: str) -> str:  # noqa: ARG001 - the shape of every operation
    """Let a thought pass; nothing is kept."""
    return "Noted."


def transfer_to_human_agents(tables: Tables, *, summary: str) -> str:  # noqa: ARG001 - the shape of every operation
    """Say that a person takes over."""
    return "The customer was transferred to a human agent."


# Pending orders


def cancel_pending_order(tables: Tables, *, order_id: str, reason: str) -> str:
    """Cancel, and refund every payment; gift cards at once."""
    order = _order_in(tables, order_id, status=PENDING, refusal="non-pending order cannot be cancelled")
    if reason not in CANCEL_REASONS:
        raise RefusedError("invalid reason")
    refunds = [_transaction("refund", paid["amount"], paid["payment_method_id"]) for paid in _outstanding(order)]
    for refund in refunds:
        _credit(tables, order["user_id"], refund["payment_method_id"], refund["amount"])
    return _save_order(
        tables,
        order | {"status": "cancelled", "cancel_reason": reason, "payment_history": [*order["payment_history"], *refunds]},
    )


def modify_pending_order_address(
    tables: Tables,
    *,
    order_id: str,
    address1: str,
    address2: str,
    city: str,
    state: str,
    country: str,
    zip: str,  # noqa: A002 - the wire's name
) -> str:
    """Send the order elsewhere."""
    order = _order_in(tables, order_id, status=PENDING, refusal="non-pending order cannot be modified")
    address = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}
    return _save_order(tables, order | {"address": address})


def modify_pending_order_payment(tables: Tables, *, order_id: str, payment_method_id: str) -> str:
    """Charge another method with the whole amount and refund the first."""
    order = _order_in(tables, order_id, status=PENDING, refusal="non-pending order cannot be modified")
    method = _payment_method(tables, order["user_id"], payment_method_id)
    history = order["payment_history"]
    if len(history) != 1 or history[0]["transaction_type"] != "payment":
        raise RefusedError("there should be exactly one payment for a pending order")
    paid = history[0]
    if paid["payment_method_id"] == payment_method_id:
        raise RefusedError("the new payment method should be different from the current one")
    _require_cover(method, paid["amount"], "insufficient gift card balance to pay for the order")
    _credit(tables, order["user_id"], payment_method_id, -paid["amount"])
    _credit(tables, order["user_id"], paid["payment_method_id"], paid["amount"])
    moved = [
        _transaction("payment", paid["amount"], payment_method_id),
        _transaction("refund", paid["amount"], paid["payment_method_id"]),
    ]
    return _save_order(tables, order | {"payment_history": [*history, *moved]})


def modify_pending_order_items(
    tables: Tables, *, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> str:
    """Swap items for other variants of the same products and settle the difference; once per order."""
    order = _order_in(tables, order_id, status=PENDING, refusal="non-pending order cannot be modified")
    swaps = _swaps(tables, order, item_ids, new_item_ids)
    difference = sum(swap.difference for swap in swaps)
    method = _payment_method(tables, order["user_id"], payment_method_id)
    _require_cover(method, difference, "insufficient gift card balance to pay for the new item")
    _credit(tables, order["user_id"], payment_method_id, -difference)
    kind = "payment" if difference > 0 else "refund"
    return _save_order(
        tables,
        order
        | {
            "items": _swapped(order["items"], swaps),
            "payment_history": [*order["payment_history"], _transaction(kind, abs(difference), payment_method_id)],
            "status": "pending (item modified)",
        },
    )


# Delivered orders


def return_delivered_order_items(tables: Tables, *, order_id: str, item_ids: list[str], payment_method_id: str) -> str:
    """Ask for a return; the refund goes to the first payment's method or to a gift card."""
    order = _order_in(tables, order_id, status=DELIVERED, refusal="non-delivered order cannot be returned")
    method = _payment_method(tables, order["user_id"], payment_method_id)
    if not _is_gift_card(method) and payment_method_id != order["payment_history"][0]["payment_method_id"]:
        raise RefusedError("payment method should be either the original payment method or a gift card")
    _positions(order["items"], item_ids)
    return _save_order(
        tables,
        order | {"status": "return requested", "return_items": sorted(item_ids), "return_payment_method_id": payment_method_id},
    )


def exchange_delivered_order_items(
    tables: Tables, *, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> str:
    """Ask for an exchange. No money moves yet."""
    order = _order_in(tables, order_id, status=DELIVERED, refusal="non-delivered order cannot be exchanged")
    swaps = _swaps(tables, order, item_ids, new_item_ids)
    difference = round(sum(swap.difference for swap in swaps), 2)
    method = _payment_method(tables, order["user_id"], payment_method_id)
    _require_cover(method, difference, "insufficient gift card balance to pay for the price difference")
    return _save_order(
        tables,
        order
        | {
            "status": "exchange requested",
            "exchange_items": sorted(item_ids),
            "exchange_new_items": sorted(new_item_ids),
            "exchange_payment_method_id": payment_method_id,
            "exchange_price_difference": difference,
        },
    )


# Users


def modify_user_address(
    tables: Tables,
    *,
    user_id: str,
    address1: str,
    address2: str,
    city: str,
    state: str,
    country: str,
    zip: str,  # noqa: A002 - the wire's name
) -> str:
    """Replace the user's own address; orders keep theirs."""
    address = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}
    changed = _user(tables, user_id) | {"address": address}
    tables.put("users", user_id, changed)
    return json.dumps(changed)


READS: Final = (
    find_user_id_by_email,
    find_user_id_by_name_zip,
    get_user_details,
    get_order_details,
    get_product_details,
    list_all_product_types,
    calculate,
    think,
    transfer_to_human_agents,
)
MUTATIONS: Final = (
    cancel_pending_order,
    modify_pending_order_address,
    modify_pending_order_payment,
    modify_pending_order_items,
    return_delivered_order_items,
    exchange_delivered_order_items,
    modify_user_address,
)
OPERATIONS: Final[Mapping[str, Operation]] = {
    function.__name__: operation(function, mutates=function in MUTATIONS) for function in (*READS, *MUTATIONS)
}


# Rows


def _found(row: Row | None, what: str) -> Row:
    if row is None:
        raise RefusedError(f"{what} not found")
    return row


def _order(tables: Tables, order_id: str) -> Row:
    return _found(tables.find("orders", order_id), "order")


def _user(tables: Tables, user_id: str) -> Row:
    return _found(tables.find("users", user_id), "user")


def _order_in(tables: Tables, order_id: str, *, status: str, refusal: str) -> Row:
    order = _order(tables, order_id)
    if order["status"] != status:
        raise RefusedError(refusal)
    return order


def _save_order(tables: Tables, order: Row) -> str:
    tables.put("orders", order["order_id"], order)
    return json.dumps(order)


# Money


def _transaction(kind: str, amount: float, payment_method_id: str) -> Row:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}


def _outstanding(order: Row) -> list[Row]:
    """Payments that were not refunded yet: an order that changed its payment method has one refund already."""
    refunded = Counter(
        (entry["payment_method_id"], entry["amount"]) for entry in order["payment_history"] if entry["transaction_type"] == "refund"
    )
    outstanding: list[Row] = []
    for entry in order["payment_history"]:
        at = (entry["payment_method_id"], entry["amount"])
        if entry["transaction_type"] != "payment":
            continue
        if refunded[at]:
            refunded[at] -= 1
        else:
            outstanding.append(entry)
    return outstanding


def _payment_method(tables: Tables, user_id: str, payment_method_id: str) -> Row:
    return _found(_user(tables, user_id)["payment_methods"].get(payment_method_id), "payment method")


def _is_gift_card(method: Row) -> bool:
    return method["source"] == "gift_card"


def _require_cover(method: Row, amount: float, refusal: str) -> None:
    if _is_gift_card(method) and method["balance"] < amount:
        raise RefusedError(refusal)


def _credit(tables: Tables, user_id: str, payment_method_id: str, amount: float) -> None:
    """Move a gift card's balance; other methods settle outside the shop."""
    user = _user(tables, user_id)
    methods: dict[str, Any] = user["payment_methods"]
    method: Row | None = methods.get(payment_method_id)
    if method is None or not _is_gift_card(method):
        return
    credited = method | {"balance": round(method["balance"] + amount, 2)}
    tables.put("users", user_id, user | {"payment_methods": methods | {payment_method_id: credited}})


# Items


@dataclass(frozen=True, slots=True)
class _Swap:
    position: int
    variant: Row
    difference: float


def _positions(items: Sequence[Row], item_ids: Sequence[str]) -> list[int]:
    """Where each named item stands; an item named twice must be there twice."""
    free = {position: item["item_id"] for position, item in enumerate(items)}
    taken: list[int] = []
    for item_id in item_ids:
        position = next((at for at, there in free.items() if there == item_id), None)
        if position is None:
            raise RefusedError("some item not found")
        del free[position]
        taken.append(position)
    return taken


def _swaps(tables: Tables, order: Row, item_ids: Sequence[str], new_item_ids: Sequence[str]) -> list[_Swap]:
    items = order["items"]
    positions = _positions(items, item_ids)
    if len(item_ids) != len(new_item_ids):
        raise RefusedError("the number of items to be exchanged should match")
    swaps: list[_Swap] = []
    for position, new_item_id in zip(positions, new_item_ids, strict=True):
        product = _found(tables.find("products", items[position]["product_id"]), "product")
        variant: Row | None = product["variants"].get(new_item_id)
        if variant is None or not variant["available"]:
            raise RefusedError(f"new item {new_item_id} not found or not available")
        swaps.append(_Swap(position, variant, variant["price"] - items[position]["price"]))
    return swaps


def _swapped(items: Sequence[Row], swaps: Sequence[_Swap]) -> list[Row]:
    swapped = list(items)
    for swap in swaps:
        new = {field: swap.variant[field] for field in ("item_id", "price", "options")}
        swapped[swap.position] = swapped[swap.position] | new
    return swapped
