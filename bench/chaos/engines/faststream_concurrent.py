"""Control: `faststream-concurrent-aiokafka`, as its manual shows it. The offset of a failed record is committed: lost (I1).

It keeps no order of keys either (I6).
"""

from faststream import AckPolicy
from faststream_concurrent_aiokafka import (
    KafkaConcurrentProcessingMiddleware,
    initialize_concurrent_processing,
    stop_concurrent_processing,
)

from bench.chaos.engines import faststream_parts
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec


async def run(spec: Spec, perform: Perform) -> None:
    """Work until asked to stop."""
    broker = faststream_parts.broker_of(spec)
    broker.add_middleware(KafkaConcurrentProcessingMiddleware)
    faststream_parts.subscribe(broker, spec, perform, AckPolicy.MANUAL)
    await initialize_concurrent_processing(context=broker.context, concurrency_limit=spec.slots)
    try:
        await faststream_parts.serve(broker, perform)
    finally:
        await stop_concurrent_processing(broker.context)
