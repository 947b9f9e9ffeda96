"""P9: whatever a model does to its stream, the text that counts is the text that was meant."""

from typing import Any

import pytest

from topics.events import AnswerDelta, AnswerRestarted

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

TEXT = " ".join(f"Sentence {number} says café, 日本, שלום and 👩\u200d👩\u200d👧 to you." for number in range(12))

MENDED: dict[str, dict[str, Any]] = {
    "busy": {"kind": "status", "status": 429, "retry_after_s": 1.0},
    "broken": {"kind": "status", "status": 500, "times": 2},
    "cut": {"kind": "cut", "after_chunks": 40},
    "dropped": {"kind": "drop", "after_chunks": 40},
    "dropped twice": {"kind": "drop", "after_chunks": 30, "times": 2},
    "garbled": {"kind": "malformed", "after_chunks": 40},
    "error event": {"kind": "error_event", "after_chunks": 40},
    "stalled": {"kind": "stall", "after_chunks": 40, "delay_s": 1.0},
    "empty": {"kind": "empty_choices"},
    "null": {"kind": "null_choices"},
    "no usage": {"kind": "no_usage"},
}
FINAL: dict[str, tuple[dict[str, Any], str, str]] = {
    "too long": ({"kind": "finish", "finish_reason": "length", "after_chunks": 40, "times": None}, "truncated", ""),
    "filtered": ({"kind": "finish", "finish_reason": "content_filter", "after_chunks": 40, "times": None}, "filtered", ""),
    "refused": ({"kind": "refusal", "text": "I will not.", "times": None}, "refused", "I will not."),
}
IN_THE_MIDDLE = {"cut", "dropped", "dropped twice", "garbled", "error event"}


async def test_the_deltas_of_the_last_attempt_joined_are_the_answer_under_every_fault(staffed, world_in, figure):
    async with world_in(staffed) as world:
        await world.model("pace", {"first_token_ms": 0, "tokens_per_s": 300})
        faults = {**MENDED, **{name: fault for name, (fault, _, _) in FINAL.items()}}
        query = {}
        for name, fault in faults.items():
            await world.model("faults", {**fault, "match": f"<{name}>"})
            await world.model("replies", {"match": f"<{name}>", "text": TEXT, "times": None})
            query[name] = await world.ask(world.tenant(name.replace(" ", "-")), f"Tell me, <{name}>")
        await world.until_ended()

        assert {name: world.text_of(query[name]) for name in MENDED} == dict.fromkeys(MENDED, TEXT)
        for name, (_, code, text) in FINAL.items():
            stream = world.witness.streams[query[name]]
            assert stream.completed is None, f"{name} is never a final answer"
            assert (stream.failed.code, stream.failed.text) == (code, text), name
        # The control: faults did hit in the middle of the text, so an answer put together from all deltas would be wrong.
        for name in IN_THE_MIDDLE:
            heard = [event.payload for event in world.heard if getattr(event.payload, "query_id", None) == query[name]]
            attempts = {delta.attempt for delta in heard if isinstance(delta, AnswerDelta)}
            assert len(attempts) >= 2, name
            assert "".join(delta.text for delta in heard if isinstance(delta, AnswerDelta)) != TEXT
            assert any(isinstance(one, AnswerRestarted) and one.reason == "retry" for one in heard), name
        deltas = [event for event in world.heard if isinstance(event.payload, AnswerDelta)]
        figure("deltas", len(deltas))
        assert not [event for event in deltas if "\N{REPLACEMENT CHARACTER}" in event.payload.text]
