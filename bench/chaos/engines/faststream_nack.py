"""Control: FastStream with `AckPolicy.NACK_ON_ERROR`, as it is. A record that always fails comes again at once, for ever (I10)."""

from faststream import AckPolicy

from bench.chaos.engines import faststream_parts
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec


async def run(spec: Spec, perform: Perform) -> None:
    """Work until asked to stop."""
    broker = faststream_parts.broker_of(spec)
    faststream_parts.subscribe(broker, spec, perform, AckPolicy.NACK_ON_ERROR)
    await faststream_parts.serve(broker, perform)
