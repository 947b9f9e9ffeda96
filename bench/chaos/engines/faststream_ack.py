"""Control: FastStream with `AckPolicy.ACK`, as it is. A record whose handler failed is acknowledged all the same: lost (I1)."""

from faststream import AckPolicy

from bench.chaos.engines import faststream_parts
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec


async def run(spec: Spec, perform: Perform) -> None:
    """Work until asked to stop."""
    broker = faststream_parts.broker_of(spec)
    faststream_parts.subscribe(broker, spec, perform, AckPolicy.ACK)
    await faststream_parts.serve(broker, perform)
