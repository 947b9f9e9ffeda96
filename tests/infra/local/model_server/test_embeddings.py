import anyio
import anyio.lowlevel
import numpy as np
import pytest

from infra.local.model_server.embeddings import SentenceEncoder


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(cache_texts=3)


async def test_near_meanings_are_nearer_than_far_ones(encoder):
    card, also_card, cats = await encoder.embed(["I lost my card", "My bank card is gone", "Cats sleep all day"])
    assert card @ also_card > 0.5 > card @ cats


async def test_a_vector_depends_on_its_text_alone(encoder):
    texts = [f"text number {index} " * (index + 1) for index in range(12)]
    together = encoder.embed_now(texts)
    for text, vector in zip(texts, together, strict=True):
        assert np.allclose(vector, encoder.embed_now([text])[0], atol=1e-3)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


async def test_text_beyond_256_tokens_does_not_count(encoder):
    long = "word " * 300
    assert np.array_equal(encoder.embed_now([long])[0], encoder.embed_now([long + "cats"])[0])


async def test_the_cache_keeps_the_last_texts_only(encoder):
    first = (await encoder.embed(["a"]))[0]
    assert (await encoder.embed(["a"]))[0] is first
    await encoder.embed(["b", "c", "d"])
    again = (await encoder.embed(["a"]))[0]
    assert again is not first
    assert np.array_equal(again, first)


async def test_more_texts_than_the_cache_holds_come_back_whole(encoder):
    assert len(await encoder.embed([f"t{index % 7}" for index in range(20)])) == 20


async def test_a_short_text_does_not_wait_for_a_whole_batch(encoder):
    done: list[str] = []

    async def embed(name: str, texts: list[str]) -> None:
        await encoder.embed(texts)
        done.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(embed, "batch", [f"passage {index} " * 60 for index in range(24)])
        await anyio.lowlevel.checkpoint()
        group.start_soon(embed, "short", ["a short question"])
    assert done == ["short", "batch"]
