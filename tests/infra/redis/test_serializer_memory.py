"""P7: the cache of encoded messages holds what its limit says, not what the encoder happened to reserve."""

import tracemalloc

from langchain_core.messages import HumanMessage

from infra.redis.serializer import CheckpointSerializer

LIMIT_BYTES = 200_000


def test_the_cache_of_messages_stays_within_its_limit_in_true_memory():
    serializer = CheckpointSerializer(cache_bytes=LIMIT_BYTES)
    serializer.dumps({"messages": [HumanMessage("warm", id="warm")]})
    tracemalloc.start()
    try:
        for number in range(2_000):
            serializer.dumps({"messages": [HumanMessage(f"Hello {number}", id=f"q{number}")]})
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1.5 * LIMIT_BYTES
