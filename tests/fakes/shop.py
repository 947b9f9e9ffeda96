"""A shop small enough to reckon in one's head."""

import copy
from typing import Any

HOME = {"address1": "1 Mill Lane", "address2": "", "city": "Leeds", "state": "WY", "country": "GB", "zip": "LS1"}
AWAY = {"address1": "9 Sea Road", "address2": "Flat 2", "city": "Hove", "state": "SX", "country": "GB", "zip": "BN3"}

RED = {"name": "Mug", "product_id": "mug", "item_id": "red", "price": 10.0, "options": {"colour": "red"}}


def _order(order_id: str, status: str, *, items: list[dict[str, Any]], method: str, amount: float) -> dict[str, Any]:
    payment = {"transaction_type": "payment", "amount": amount, "payment_method_id": method}
    return {
        "order_id": order_id,
        "user_id": "ann",
        "address": HOME,
        "items": items,
        "fulfillments": [],
        "status": status,
        "payment_history": [payment],
    }


def _variant(item_id: str, price: float, *, available: bool = True) -> dict[str, Any]:
    return {"item_id": item_id, "options": {"colour": item_id}, "available": available, "price": price}


def small_shop() -> dict[str, dict[str, Any]]:
    """One customer, one product in four colours, and orders in each state. Yours to change."""
    methods = {
        "card": {"source": "credit_card", "brand": "visa", "last_four": "0001", "id": "card"},
        "gift": {"source": "gift_card", "balance": 20, "id": "gift"},
        "pal": {"source": "paypal", "id": "pal"},
    }
    orders = (
        _order("#P1", "pending", items=[RED, RED], method="card", amount=20.0),
        _order("#P2", "pending", items=[RED], method="gift", amount=10.0),
        _order("#D1", "delivered", items=[RED, RED | {"item_id": "blue", "price": 12.0}], method="card", amount=22.0),
        _order("#X1", "processed", items=[RED], method="card", amount=10.0),
    )
    variants = (_variant("red", 10.0), _variant("blue", 12.0), _variant("gold", 100.0), _variant("grey", 9.0, available=False))
    user = {
        "name": {"first_name": "Ann", "last_name": "Bell"},
        "address": HOME,
        "email": "ann@example.com",
        "payment_methods": methods,
        "orders": [order["order_id"] for order in orders],
    }
    return copy.deepcopy(
        {
            "orders": {order["order_id"]: order for order in orders},
            "products": {
                "mug": {"name": "Mug", "product_id": "mug", "variants": {item["item_id"]: item for item in variants}},
                "cup": {"name": "Cup", "product_id": "cup", "variants": {"white": _variant("white", 5.0)}},
            },
            "users": {"ann": user},
        }
    )
