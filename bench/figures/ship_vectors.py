"""python -m bench.figures.ship_vectors: make the vectors in `bench/data` anew, when passages or the model have changed."""

import anyio

from bench.figures import judged
from bench.figures.vectors import SHIPPED


async def main() -> None:
    """Embed what the cache lacks, and write all."""
    async with judged.shelf(shipped=False) as shelf:
        for name in judged.SETS:
            print(name, await judged.put(shelf, name, judged.load(name).articles))
        shelf.embedder.ship(SHIPPED)


if __name__ == "__main__":
    anyio.run(main)
