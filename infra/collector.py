"""Python's garbage collector, told what a worker is like."""

import gc
from typing import Final

YOUNG_OBJECTS: Final = 10_000


def calm_collector() -> None:
    """Stop it from walking through all that was imported, again and again; call this once everything is built.

    A query makes thousands of objects that live for a second, so with the usual threshold of 700 the collector promotes what
    is about to die, and full collections follow: a fifth of a worker's CPU time was theirs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
