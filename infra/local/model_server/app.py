"""The HTTP shape of the server: routes, status codes and bodies. Pure ASGI."""

import base64
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

import anyio
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from infra.clock import SystemClock
from infra.local.data import datasets
from infra.local.model_server import completions, http, streaming
from infra.local.model_server.brain import Brain
from infra.local.model_server.completions import BadRequestError, ChatRequest, Reply, Stamp
from infra.local.model_server.control import Controls
from infra.local.model_server.embeddings import DIMENSIONS, MODEL, SentenceEncoder
from infra.local.model_server.faults import Fault, Kind, Pace, bend
from infra.local.model_server.journal import Entry
from infra.local.model_server.tasks import TaskBook
from infra.local.model_server.triage import IntentClassifier, Triage

CHAT_MODEL: Final = "sluice-demo"
MAX_INPUTS: Final = 2048
CHAT_PATH: Final = "/v1/chat/completions"
EMBEDDINGS_PATH: Final = "/v1/embeddings"
SPLITS: Final[tuple[datasets.Split, ...]] = ("test", "dev", "train")

Vector = NDArray[np.float32]


class Encoder(Protocol):
    """Texts to unit vectors of 384 floats."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in their order."""
        ...


class ModelServer:
    """The ASGI application."""

    def __init__(self, *, encoder: Encoder, brain: Brain, pace: Pace) -> None:
        self.controls = Controls(brain, pace)
        self._encoder = encoder
        self._clock = SystemClock()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await http.serve_lifespan(receive, send)
            return
        body = await http.read_body(receive)
        method, path = cast("str", scope["method"]), cast("str", scope["path"])
        if path in {CHAT_PATH, EMBEDDINGS_PATH} and method == "POST":
            await http.while_connected(receive, lambda: self._answer_model(path, body, send))
        else:
            await self._answer_other(method, path, body, send)

    async def _answer_other(self, method: str, path: str, body: bytes, send: http.Send) -> None:
        if (method, path) == ("GET", "/healthz"):
            await http.send_json(send, {"status": "ok"})
        elif (method, path) == ("GET", "/v1/models"):
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "sluice"} for name in (CHAT_MODEL, MODEL)]
            await http.send_json(send, {"object": "list", "data": models})
        elif path.startswith("/control/"):
            await self._answer_control(method, path, body, send)
        else:
            error = completions.error_body(f"unknown URL ({method} {path})", kind="invalid_request_error", code="unknown_url")
            await http.send_json(send, error, status=404)

    async def _answer_control(self, method: str, path: str, body: bytes, send: http.Send) -> None:
        try:
            result = self.controls.handle(method, path, http.parse(body or b"{}"))
        except (ValidationError, http.NotJsonError) as error:
            await http.send_json(send, {"error": str(error)}, status=422)
            return
        await http.send_json(
            send, result if result is not None else {"error": "no such control"}, status=404 if result is None else 200
        )

    async def _answer_model(self, path: str, body: bytes, send: http.Send) -> None:
        with self.controls.journal.request(path) as entry:
            try:
                await self._serve(path, body, entry, send)
            except (BadRequestError, http.NotJsonError) as error:
                entry.status = 400
                await http.send_json(send, completions.error_body(str(error), kind="invalid_request_error"), status=400)

    async def _serve(self, path: str, body: bytes, entry: Entry, send: http.Send) -> None:
        data = http.parse(body)
        if not isinstance(data, dict):
            raise BadRequestError("the body must be a JSON object")
        fields = cast("dict[str, Any]", data)
        if path == EMBEDDINGS_PATH:
            await self._embed(fields, body, entry, send)
            return
        request = completions.read_request(fields)
        entry.model, entry.asked, entry.stream = request.model, request.asked[:200], request.stream
        texts = [body.decode(errors="replace"), *(message.text for message in request.messages)]
        faults = self.controls.take_faults(texts, path="chat")
        if await self._failed(faults, entry, send, asked=texts[0]):
            return
        await self._complete(request, texts, faults, entry, send)

    async def _complete(
        self, request: ChatRequest, texts: Sequence[str], faults: Mapping[Kind, Fault], entry: Entry, send: http.Send
    ) -> None:
        scripted = self.controls.replies.take(texts, lambda _: True)
        reply = bend(scripted.reply() if scripted else await self.controls.brain.reply(request), tuple(faults.values()))
        stamp = self._stamp(request, texts[0])
        usage = None if "no_usage" in faults else completions.usage_of(request, reply)
        entry.status, entry.finish_reason, entry.reply_id = 200, reply.finish, stamp.completion_id
        if usage is not None:
            entry.input_tokens, entry.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        pace = self.controls.pace
        if request.stream:
            stream = streaming.EventStream(send, pace=pace, started_s=entry.started_s)
            shown = usage if request.include_usage else None
            await streaming.send_stream(stream, stamp, reply, faults=tuple(faults.values()), usage=shown)
            return
        await self._wait_for_all(reply, stamp, pace, entry)
        await streaming.send_body(send, stamp, reply, faults=tuple(faults.values()), usage=usage)

    async def _wait_for_all(self, reply: Reply, stamp: Stamp, pace: Pace, entry: Entry) -> None:
        tokens = sum(1 for _ in completions.deltas(stamp, reply)) if pace.tokens_per_s else 0
        await anyio.sleep(max(0.0, entry.started_s + pace.due_s(tokens) - self._clock.monotonic_s()))

    async def _failed(self, faults: Mapping[Kind, Fault], entry: Entry, send: http.Send, *, asked: str = "") -> bool:
        """Wait as scripted, then answer with an error where one is scripted or the limit is reached."""
        entry.faults = list(faults)
        if "delay" in faults:
            await anyio.sleep(faults["delay"].delay_s)
        if "hang" in faults:
            await anyio.sleep_forever()
        wait_s = self.controls.limiter.wait_s(self._clock.monotonic_s())
        fault = faults.get("status")
        if wait_s:
            fault = Fault(kind="status", status=429, retry_after_s=wait_s, code="rate_limit_exceeded")
        if fault is None:
            return False
        entry.status = fault.status
        headers = {} if fault.retry_after_s is None else {"retry-after": f"{fault.retry_after_s:.3f}".rstrip("0").rstrip(".")}
        kind = "rate_limit_error" if fault.status == 429 else "server_error" if fault.status >= 500 else "invalid_request_error"
        said = f"the provider cannot read {asked}" if fault.echo else f"the provider answers {fault.status}"
        error = completions.error_body(said, kind=kind, code=fault.code)
        await http.send_json(send, error, status=fault.status, headers=headers)
        return True

    def _stamp(self, request: ChatRequest, body: str) -> Stamp:
        """Ids differ between completions, even of one request, as a provider's do."""
        digest = hashlib.blake2b(f"{next(self._numbers)}\n{body}".encode(), digest_size=12).hexdigest()
        return Stamp(f"chatcmpl-{digest}", int(self._clock.now().timestamp()), request.model)

    async def _embed(self, fields: dict[str, Any], body: bytes, entry: Entry, send: http.Send) -> None:
        texts = _inputs(fields)
        entry.model, entry.asked, entry.inputs = str(fields.get("model", MODEL)), texts[0][:200], len(texts)
        faults = self.controls.take_faults([body.decode(errors="replace"), *texts], path="embeddings")
        if await self._failed(faults, entry, send):
            return
        vectors = await self._encoder.embed(texts)
        packed = fields.get("encoding_format") == "base64"
        rows = [
            {"object": "embedding", "index": index, "embedding": _pack(vector) if packed else vector}
            for index, vector in enumerate(vectors)
        ]
        tokens = max(1, sum(map(len, texts)) // 4)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        entry.status, entry.input_tokens, entry.output_tokens = 200, tokens, 0
        await http.send_json(send, {"object": "list", "data": rows, "model": entry.model, "usage": usage})


def build_server(*, pace: Pace | None = None) -> ModelServer:
    """Load the weights and the data, and put the server together; takes about half a second."""
    encoder = SentenceEncoder()
    book = TaskBook(task for split in SPLITS for task in datasets.retail_tasks(split))
    brain = Brain(triage=Triage(encoder, IntentClassifier.load()), book=book)
    return ModelServer(encoder=encoder, brain=brain, pace=pace or Pace())


def _inputs(fields: Mapping[str, Any]) -> list[str]:
    given = fields.get("input")
    texts = cast("list[Any]", given) if isinstance(given, list) else [given]
    if not texts or len(texts) > MAX_INPUTS or not all(isinstance(text, str) and text for text in texts):
        raise BadRequestError(f"'input' must be text, or 1 to {MAX_INPUTS} texts, none empty; token arrays are not read")
    if fields.get("dimensions", DIMENSIONS) != DIMENSIONS:
        raise BadRequestError(f"this model has {DIMENSIONS} dimensions")
    return cast("list[str]", texts)


def _pack(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
