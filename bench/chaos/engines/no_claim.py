"""Control: ours without the inbox. What was done and not yet committed is handled again after every kill and rebalance (I3)."""

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from bench.no_inbox import NoInbox


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    await ours.run(spec, perform, ours.Guards(inbox=lambda _inbox: NoInbox()))
