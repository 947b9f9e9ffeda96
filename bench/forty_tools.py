"""Forty tools: the shop's sixteen and twenty-four of other desks, told and never run. For what a router is worth."""

from typing import Annotated, Any, Final

from pydantic import Field

from flows.agent.tools import Tool, ToolContext, Toolset, tool
from flows.toolsets import retail

Code = Annotated[str, Field(description="An airport's code of three letters, for example 'LYS'.")]
Reservation = Annotated[str, Field(description="The reservation's code of six characters, for example 'ABC12D'.")]
Phone = Annotated[str, Field(description="A phone number with its country code.")]
Card = Annotated[str, Field(description="The card's id, for example 'card_000'.")]


async def book_flight(context: ToolContext, *, origin: Code, destination: Code, date: str, passengers: list[str]) -> str:
    """Book seats on a flight for named passengers."""
    raise NotImplementedError


async def cancel_reservation(context: ToolContext, *, reservation_id: Reservation) -> str:
    """Cancel a whole flight reservation."""
    raise NotImplementedError


async def get_reservation_details(context: ToolContext, *, reservation_id: Reservation) -> str:
    """Read a flight reservation: flights, passengers, cabin and baggage."""
    raise NotImplementedError


async def search_direct_flights(context: ToolContext, *, origin: Code, destination: Code, date: str) -> str:
    """Find flights without a stop between two airports on a day."""
    raise NotImplementedError


async def search_connecting_flights(context: ToolContext, *, origin: Code, destination: Code, date: str) -> str:
    """Find flights with one stop between two airports on a day."""
    raise NotImplementedError


async def list_airports(context: ToolContext) -> str:
    """List all airports with their codes and cities."""
    raise NotImplementedError


async def update_reservation_flights(context: ToolContext, *, reservation_id: Reservation, flights: list[str], cabin: str) -> str:
    """Change the flights or the cabin of a reservation."""
    raise NotImplementedError


async def update_reservation_baggage(context: ToolContext, *, reservation_id: Reservation, bags: int) -> str:
    """Add checked bags to a reservation."""
    raise NotImplementedError


async def update_passenger_names(context: ToolContext, *, reservation_id: Reservation, passengers: list[str]) -> str:
    """Correct the names of a reservation's passengers."""
    raise NotImplementedError


async def send_travel_voucher(context: ToolContext, *, user_id: str, cents: int) -> str:
    """Give a traveller a voucher after a delay or a cancelled flight."""
    raise NotImplementedError


async def get_flight_status(context: ToolContext, *, flight_number: str, date: str) -> str:
    """Read whether a flight is on time, delayed, landed or cancelled."""
    raise NotImplementedError


async def get_subscriber_by_phone(context: ToolContext, *, phone: Phone) -> str:
    """Get the mobile subscriber, with lines and plans, of a phone number."""
    raise NotImplementedError


async def get_mobile_bill(context: ToolContext, *, bill_id: str) -> str:
    """Read a mobile bill: its amount, due date and charges."""
    raise NotImplementedError


async def suspend_line(context: ToolContext, *, line_id: str, reason: str) -> str:
    """Suspend a mobile line, for example when the phone was stolen."""
    raise NotImplementedError


async def resume_line(context: ToolContext, *, line_id: str) -> str:
    """Take a suspended mobile line into use again."""
    raise NotImplementedError


async def refuel_data(context: ToolContext, *, line_id: str, gigabytes: int) -> str:
    """Add mobile data to a line for this month."""
    raise NotImplementedError


async def enable_roaming(context: ToolContext, *, line_id: str) -> str:
    """Let a mobile line be used in other countries."""
    raise NotImplementedError


async def reset_voicemail_pin(context: ToolContext, *, line_id: str) -> str:
    """Reset the voicemail code of a mobile line."""
    raise NotImplementedError


async def block_card(context: ToolContext, *, card_id: Card) -> str:
    """Block a bank card at once."""
    raise NotImplementedError


async def order_new_card(context: ToolContext, *, card_id: Card, express: bool = False) -> str:
    """Order a bank card that takes the place of another one."""
    raise NotImplementedError


async def list_card_transactions(context: ToolContext, *, card_id: Card, since: str) -> str:
    """List what a bank card paid, newest first."""
    raise NotImplementedError


async def open_dispute(context: ToolContext, *, transaction_id: str, reason: str) -> str:
    """Dispute a transaction on a bank account that the customer does not recognise."""
    raise NotImplementedError


async def transfer_money(context: ToolContext, *, from_account: str, to_account: str, cents: int) -> str:
    """Transfer money between two bank accounts."""
    raise NotImplementedError


async def get_exchange_rate(context: ToolContext, *, from_currency: str, to_currency: str) -> str:
    """Read the rate at which one currency is exchanged for another."""
    raise NotImplementedError


_READS: Final = (
    get_reservation_details, search_direct_flights, search_connecting_flights, list_airports, get_flight_status,
    get_subscriber_by_phone, get_mobile_bill, list_card_transactions, get_exchange_rate,
)  # fmt: skip
_CHANGES: Final = (
    book_flight, cancel_reservation, update_reservation_flights, update_reservation_baggage, update_passenger_names,
    send_travel_voucher, suspend_line, resume_line, refuel_data, enable_roaming, reset_voicemail_pin, block_card,
    order_new_card, open_dispute, transfer_money,
)  # fmt: skip


def _tools() -> tuple[Tool, ...]:
    reads: list[Any] = [tool(effect="READ")(function) for function in _READS]
    changes: list[Any] = [tool(effect="WRITE")(function) for function in _CHANGES]
    return (*retail.toolset.tools, *reads, *changes)


FORTY: Final = Toolset("forty", retail.INSTRUCTIONS, _tools(), pinned=retail.toolset.pinned)
