"""Names of headers that are not UTF-8, as the protocol lets anybody write them: read as they are, and written back to the byte.

The client reads names as strict UTF-8. A single other one ended the worker, and again at every start, so its partition stood still
for good (P10). Such a name is a `str` with lone surrogates in place of its odd bytes, as Python has it for file names.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy  # pyright: ignore[reportPrivateUsage] -- the compiled ones cannot be told how to read a name
from aiokafka.record.memory_records import MemoryRecords

_BEFORE_LENGTH: Final = 8
_OVERHEAD: Final = 12


def read_any_header_name() -> None:
    """Let every consumer of this process read such names. Doing it again changes nothing."""
    fetcher.MemoryRecords = _Records  # pyright: ignore[reportAttributeAccessIssue] -- the client has no setting for it


def is_odd(name: str) -> bool:
    """Whether a name was no UTF-8."""
    return any("\ud800" <= char <= "\udfff" for char in name)


def shown(name: str) -> str:
    """A name for people."""
    return name.encode("utf-8", "surrogateescape").decode(errors="backslashreplace")


def with_odd_names(batch: Any, *, size_bytes: int = 1) -> Any:
    """The same batch of the client, empty as yet, written by a builder that takes such names; one record always fits."""
    batch._builder = _DefaultRecordBatchBuilderPy(  # noqa: SLF001 -- there is no other way to hand it a builder
        2,
        _DefaultRecordBatchBuilderPy.CODEC_ZSTD,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=0,
        batch_size=size_bytes,
    )
    return batch


def written(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Headers for that builder."""
    return [(_Name(name), value) for name, value in headers]


class _Name(str):
    """A name that the builder asks for its bytes."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        """Give the bytes that were read."""
        return super().encode("utf-8", "surrogateescape")


class _Text(bytearray):
    """What the reader in Python cuts a batch's names from."""

    def __getitem__(self, at: Any) -> Any:
        found = cast("Any", super()).__getitem__(at)
        return _Text(found) if isinstance(at, slice) else found

    def decode(self, *_: Any, **__: Any) -> str:
        return super().decode("utf-8", "surrogateescape")


class _Records:
    """The client's records, of which each batch also knows its bytes."""

    def __init__(self, data: bytes) -> None:
        self._records, self._data, self._at = MemoryRecords(data), data, 0

    def size_in_bytes(self) -> int:
        return self._records.size_in_bytes()

    def has_next(self) -> bool:
        return self._records.has_next()

    def next_batch(self) -> "_Batch | None":
        batch = self._records.next_batch()
        if batch is None:
            return None
        (length,) = struct.unpack_from(">i", self._data, self._at + _BEFORE_LENGTH)
        begin, self._at = self._at, self._at + _OVERHEAD + length
        return _Batch(batch, memoryview(self._data)[begin : self._at])


class _Batch:
    """A batch of the client; one that it cannot read is read again from where it stopped, slowly."""

    def __init__(self, batch: Any, data: memoryview) -> None:
        self._batch, self._data = batch, data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                yield record
                read += 1
        except UnicodeDecodeError:
            slowly: Any = _DefaultRecordBatchPy(self._data)
            slowly._maybe_uncompress()  # noqa: SLF001 -- as `__iter__` does first
            slowly._buffer = _Text(slowly._buffer)  # noqa: SLF001 -- where it cuts names from
            yield from islice(slowly, read, None)
