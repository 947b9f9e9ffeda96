"""Every way to fail, as the real client sees it."""

import asyncio
import json
import time

import httpx
import openai
import pytest
from langchain_core.messages import HumanMessage


def test_a_429_carries_retry_after_and_the_client_may_try_again(server):
    server.control("faults", [{"kind": "status", "status": 429, "retry_after_s": 0.2, "times": 2}])
    with pytest.raises(openai.RateLimitError) as caught:
        server.chat().invoke("hello")
    assert caught.value.response.headers["retry-after"] == "0.2"
    with pytest.raises(openai.RateLimitError):
        server.chat().invoke("hello")
    assert "hello" in server.chat().invoke("hello").content
    assert server.journal()["by_status"] == {"429": 2, "200": 1}


def test_a_fault_strikes_only_requests_with_its_text_in_any_spelling(server):
    server.control("faults", [{"kind": "status", "status": 503, "match": 'she said "no"\nand left', "times": None}])
    assert server.chat().invoke("something else").content
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            server.chat().invoke('she said "no"\nand left')


def test_a_skipping_fault_leaves_the_first_requests_alone(server):
    server.control("faults", [{"kind": "status", "status": 500, "skip": 2}])
    outcomes = [server.http.post("/v1/chat/completions", json=_request()).status_code for _ in range(4)]
    assert outcomes == [200, 200, 500, 200]


def test_a_request_that_fails_by_status_leaves_the_stream_faults_for_the_next(server):
    server.control("faults", [{"kind": "cut", "after_chunks": 2}, {"kind": "status", "status": 500}])
    with pytest.raises(openai.InternalServerError):
        list(server.chat().stream("hello"))
    assert _finish_reasons(server.chat().stream("hello")) == []


def test_a_cut_stream_ends_without_a_finish_reason(server):
    server.control("faults", [{"kind": "cut", "after_chunks": 3}])
    parts = list(server.chat().stream("hello"))
    assert len([part for part in parts if part.content]) == 3
    assert _finish_reasons(parts) == []


def test_a_cut_strikes_even_a_reply_shorter_than_its_place(server):
    server.control("replies", [{"text": "Yes."}])
    server.control("faults", [{"kind": "cut", "after_chunks": 50}])
    parts = list(server.chat().stream("hello"))
    assert "".join(part.content for part in parts) == "Yes."
    assert _finish_reasons(parts) == []


def test_a_dropped_connection_is_an_error_in_streams_and_bodies(server):
    server.control("faults", [{"kind": "drop", "times": 2, "after_chunks": 2}])
    seen = []
    with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
        seen.extend(server.chat().stream("hello"))
    assert seen
    with pytest.raises(openai.APIConnectionError):
        server.chat().invoke("hello")


def test_a_malformed_event_and_an_error_event_raise(server):
    server.control("faults", [{"kind": "malformed"}])
    with pytest.raises(ValueError, match="property name"):
        list(server.chat().stream("hello"))
    server.control("faults", [{"kind": "error_event"}])
    with pytest.raises(openai.APIError):
        list(server.chat().stream("hello"))


@pytest.mark.parametrize("streamed", [True, False])
def test_odd_finish_reasons_arrive(server, streamed):
    server.control("faults", [{"kind": "finish", "finish_reason": "length", "after_chunks": 2}, {"kind": "delay", "delay_s": 0}])
    whole = _whole(server, "hello", streamed=streamed)
    assert whole.response_metadata["finish_reason"] == "length"
    assert whole.content == "Thank you"
    server.control("faults", [{"kind": "finish", "finish_reason": "content_filter"}])
    assert _whole(server, "hello", streamed=streamed).response_metadata["finish_reason"] == "content_filter"


def test_a_text_is_cut_as_it_is_told_to_be(server):
    server.control("replies", [{"cut": ["H", "el", "lo  wor", "ld"], "times": 2}])
    parts = [part.content for part in server.chat().stream("hello") if part.content]
    assert parts == ["H", "el", "lo  wor", "ld"]
    assert server.chat().invoke("hello").content == "Hello  world"


def test_a_refusal_arrives_as_one(server):
    server.control("faults", [{"kind": "refusal", "text": "I must not do that."}])
    refused = server.chat().invoke("hello")
    assert refused.additional_kwargs["refusal"] == "I must not do that."
    assert refused.content == ""


def test_a_streamed_refusal_travels_as_refusal_pieces(server):
    server.control("faults", [{"kind": "refusal", "text": "I must not do that."}])
    lines = server.http.post("/v1/chat/completions", json=_request() | {"stream": True}).text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("refusal", "") for delta in deltas) == "I must not do that."
    assert not any(delta.get("content") for delta in deltas)
    assert lines[-2] == "data: [DONE]"


@pytest.mark.parametrize("kind", ["empty_choices", "null_choices"])
def test_a_body_without_choices_is_no_answer(server, kind):
    server.control("faults", [{"kind": kind, "times": 2}])
    with pytest.raises((TypeError, IndexError, ValueError)):
        server.chat().invoke("hello")
    raw = server.http.post("/v1/chat/completions", json=_request()).json()
    assert raw["choices"] == ([] if kind == "empty_choices" else None)


def test_an_empty_stream_has_no_text_and_no_finish_reason(server):
    server.control("faults", [{"kind": "empty_choices"}])
    parts = list(server.chat().stream("hello"))
    assert "".join(part.content for part in parts) == ""
    assert _finish_reasons(parts) == []


def test_missing_usage_is_missing(server):
    server.control("faults", [{"kind": "no_usage", "times": 2}])
    assert server.chat().invoke("hello").usage_metadata is None
    assert not any(part.usage_metadata for part in server.chat(stream_usage=True).stream("hello"))


def test_a_hanging_model_times_out_and_is_written_down_as_left(server):
    server.control("faults", [{"kind": "hang"}])
    with pytest.raises(openai.APITimeoutError):
        server.chat().root_client.with_options(timeout=0.2).chat.completions.create(**_request())
    deadline = time.monotonic() + 5
    while server.journal()["in_flight"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.journal()["by_status"] == {"499": 1}


def test_the_pace_is_kept(server):
    server.control("pace", {"first_token_ms": 100, "tokens_per_s": 50})
    server.control("replies", [{"text": "one two three four five six", "times": 2}])
    started = time.monotonic()
    arrivals = [time.monotonic() - started for part in server.chat().stream("x") if part.content]
    assert arrivals[0] >= 0.1
    assert arrivals[-1] >= 0.2
    assert len(arrivals) == 6
    started = time.monotonic()
    server.chat().invoke("x")
    assert time.monotonic() - started >= 0.2


def test_faults_on_embeddings_leave_chat_alone(server):
    server.control("faults", [{"kind": "status", "status": 503, "path": "embeddings"}])
    assert server.chat().invoke("hello").content
    with pytest.raises(openai.InternalServerError):
        server.embeddings().embed_query("hello")
    assert len(server.embeddings().embed_query("hello")) == 384


def test_a_rate_limit_admits_evenly_and_says_when_to_come_back(server):
    server.control("limit", {"requests_per_minute": 60, "burst": 2})
    answers = [server.http.post("/v1/chat/completions", json=_request()) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < float(answers[2].headers["retry-after"]) <= 1


async def test_hundreds_of_slow_requests_are_served_at_once(server):
    server.control("pace", {"first_token_ms": 300})
    async with httpx.AsyncClient(base_url=server.url, timeout=20, limits=httpx.Limits(max_connections=120)) as client:
        started = time.monotonic()
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=_request()) for _ in range(120)))
        took_s = time.monotonic() - started
    assert {answer.status_code for answer in answers} == {200}
    assert server.journal()["peak_in_flight"] > 50
    assert took_s < 10


def test_the_journal_tells_what_was_asked_and_reset_forgets(server):
    server.chat().invoke([HumanMessage("first"), HumanMessage("second")])
    (entry,) = server.journal()["requests"]
    assert (entry["path"], entry["status"], entry["model"], entry["asked"]) == (
        "/v1/chat/completions",
        200,
        "sluice-demo",
        "second",
    )
    server.control("reset")
    assert server.journal() | {"by_status": None} == {
        "total": 0, "in_flight": 0, "peak_in_flight": 0, "by_status": None, "requests": []
    }  # fmt: skip


def test_a_control_request_that_is_not_understood_changes_nothing(server):
    refused = server.http.post("/control/faults", json=[{"kind": "cut"}, {"kind": "explode"}])
    assert refused.status_code == 422
    assert server.control("brain", {"parallel": True})["faults"] == 0
    assert server.http.post("/control/nothing", json={}).status_code == 404


def test_requests_that_no_provider_takes_are_refused(server):
    for body in ("{", "[]", "{}", '{"model": "m"}', '{"model": "m", "messages": [{"role": "king", "content": "x"}]}'):
        assert server.http.post("/v1/chat/completions", content=body).status_code == 400
    assert server.http.post("/v1/embeddings", json={"input": [[1, 2]]}).status_code == 400
    assert server.http.get("/v1/nowhere").status_code == 404
    assert server.http.get("/healthz").json() == {"status": "ok"}
    assert len(server.http.get("/v1/models").json()["data"]) == 2


def _request() -> dict:
    return {"model": "sluice-demo", "messages": [{"role": "user", "content": "hello"}]}


def _finish_reasons(parts) -> list[str]:
    return [part.response_metadata["finish_reason"] for part in parts if part.response_metadata.get("finish_reason")]


def _whole(server, text: str, *, streamed: bool):
    if not streamed:
        return server.chat().invoke(text)
    parts = list(server.chat().stream(text))
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    return whole
