"""A provider that is out, that hangs, that stops in the middle, and then two that are out: who answers, who waits, and who is lost.

Questions come at a steady pace. Provider a answers 503 for a while (20 minutes, scaled); it takes questions and never answers; it
stops in mid-answer; then 503 comes from both. Each provider's answers name it, and its own journal tells what it got. The control
has provider a alone.
"""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import latency, rig
from bench.figures.bounds import hold
from bench.figures.scene import COLUMNS, QUESTION, TRIAL, WITHIN_S, Asker, Provider, Scene, open_provider
from infra.kafka.reading import scan
from topics.catalogue import DEAD_LETTERS, QUERIES, Catalogue
from workers.client import open_client
from workers.demo.crew import crew
from workers.demo.host import Host, furnish
from workers.demo.people import UNSIGNED
from workers.demo.witness import Stream

OUT_S: Final = 12.0
OUT_FULL_S: Final = 120.0
BOTH_OUT_S: Final = 4.0
BOTH_OUT_FULL_S: Final = 60.0
PATIENCE_S: Final = 2.0  # for a's first token, and between its tokens
BREAKER_OPEN_S: Final = 0.5
LATER: Final = 12
STOPPED: Final = 4
STOPS_AFTER: Final = 3
WORKER: Final = "worker"


async def run(*, full: bool) -> dict[str, Any]:
    """Measure it, with the control. Prints the table.

    Raises:
        FigureError: A question was not answered as it should be.
    """
    broker, _ = rig.choose_broker(None)
    async with open_provider("a", timeout_s=PATIENCE_S) as a, open_provider("b") as b, rig.rig(broker, **_settings(a, b)) as host:
        figures = await _with_both(host, a, b, out_s=OUT_FULL_S if full else OUT_S, both_s=BOTH_OUT_FULL_S if full else BOTH_OUT_S)
        figures |= await _alone(host, a)
    return judge(figures)


def judge(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures, when every bound holds."""
    return hold(
        figures,
        every_question_in_the_outage_was_answered_by_b=figures["outage_answered_by_b"] == figures["outage_queries"] > 0,
        nothing_was_lost=figures["outage_dead_letters"] == 0,
        a_was_tried=figures["outage_probes"] > 0,
        a_was_used_again=figures["outage_used_again"],
        every_question_that_a_held_was_answered_by_b=figures["outage_hang_answered_by_b"] == figures["outage_hang_queries"],
        some_waited_for_a_that_hangs=figures["outage_hang_waited"] > 0,
        nobody_waits_behind_an_open_breaker=figures["outage_hang_waited_behind_an_open_breaker"] == 0,
        every_answer_that_stopped_was_begun_anew=figures["outage_stopped_restarted"] == figures["outage_stopped"] > 0,
        none_was_continued_by_somebody_else=figures["outage_stopped_wrong"] == 0,
        intake_paused=figures["outage_paused"],
        all_were_answered_in_the_end=figures["outage_caught_up"] == figures["outage_waited"] > 0,
        without_b_some_waited=figures["outage_control_unanswered"] > 0,
    )


def _settings(*providers: Provider, **more: Any) -> dict[str, Any]:
    return {"providers": [one.settings() for one in providers], "breaker_open_s": BREAKER_OPEN_S, **more}


@asynccontextmanager
async def _asking(host: Host) -> AsyncGenerator[Asker]:
    async with (
        crew(host.data_dir) as members,
        open_client(host.settings, source="bench") as client,
        latency.watching(client) as witness,
    ):
        await members.start(WORKER, ["query"])
        await rig.until_assigned(members, [WORKER], partitions=2 * QUERIES.partitions)
        asker = Asker(client, witness)
        first = [await asker.ask() for _ in range(8)]
        await asker.ended(first, what="the first answers")
        yield asker


async def _with_both(host: Host, a: Provider, b: Provider, *, out_s: float, both_s: float) -> dict[str, Any]:
    async with _asking(host) as asker:
        scene = Scene(host, asker, a, b)
        await scene.show("both serve", list(asker.asked))
        figures = await _refuses(scene, out_s)
        figures |= await _hangs(scene)
        figures |= await _stops(scene)
        figures |= await _both_refuse(scene, both_s)
    rig.print_table("Questions while a provider is out", COLUMNS, scene.rows)
    return {"outage_seconds": out_s, **figures, "outage_dead_letters": await _dead_letters(host)}


async def _refuses(scene: Scene, seconds: float) -> dict[str, Any]:
    """Provider a says 503, and then serves again."""
    await scene.a.fault(kind="status", status=503)
    during = await scene.asker.ask_for(seconds)
    await scene.asker.ended(during, what="every question of the outage")
    probes = await scene.a.count(asked=TRIAL)
    await scene.show("a says 503", during)
    again = await scene.a_serves_again()
    return {
        "outage_queries": len(during),
        "outage_answered_by_b": scene.answered_by(scene.b, during),
        "outage_probes": probes,
        "outage_used_again": scene.answered_by(scene.a, again) > 0,
    }


async def _hangs(scene: Scene) -> dict[str, Any]:
    """Provider a takes what it is asked and never answers. Once a trial was made its breaker is open: no question gets there."""
    await scene.a.fault(kind="hang")
    first = await scene.asker.ask_until(lambda: scene.a.count(fault="hang", asked=TRIAL), what="a breaker that is open")
    waited = await _held(scene.a)
    later = [await scene.asker.ask() for _ in range(LATER)]
    during = [*first, *later]
    await scene.asker.ended(during, what="every question while a hangs")
    trials, held = await scene.a.count(fault="hang", asked=TRIAL), await _held(scene.a)
    await scene.show("a hangs", during)
    await scene.a_serves_again()
    return {
        "outage_hang_queries": len(during),
        "outage_hang_answered_by_b": scene.answered_by(scene.b, during),
        "outage_hang_waited": held,
        "outage_hang_waited_behind_an_open_breaker": held - waited,
        "outage_hang_trials": trials,
    }


async def _held(provider: Provider) -> int:
    """How many questions it took and did not answer."""
    return await provider.count(fault="hang") - await provider.count(fault="hang", asked=TRIAL)


async def _stops(scene: Scene) -> dict[str, Any]:
    """Provider a stops in the middle of some answers: who was told their beginning is told so, and gets a whole one."""
    await scene.a.fault(kind="stall", delay_s=WITHIN_S, after_chunks=STOPS_AFTER, times=STOPPED, match=QUESTION)
    during = [await scene.asker.ask() for _ in range(2 * STOPPED)]
    await scene.asker.ended(during, what="every question while a stops in mid-answer")
    stopped = await scene.a.count(fault="stall")
    await scene.show("a stops in mid-answer", during)
    streams = [scene.asker.witness.streams[one] for one in during]
    void = [text for stream in streams for text in void_texts(stream)]
    return {
        "outage_stopped": stopped,
        "outage_stopped_restarted": sum(text != scene.a.text and scene.a.text.startswith(text) for text in void if text),
        "outage_stopped_wrong": sum(not is_whole(stream, (scene.a.text, scene.b.text)) for stream in streams),
    }


async def _both_refuse(scene: Scene, seconds: float) -> dict[str, Any]:
    """Nobody serves: intake pauses, and everything is answered afterwards."""
    for provider in (scene.a, scene.b):
        await provider.fault(kind="status", status=503)
    waited = await scene.asker.ask_for(seconds)
    before, paused = scene.asker.answered(waited), _has_paused(scene.host)
    for provider in (scene.a, scene.b):
        await provider.reset()
    await scene.asker.ended(waited, what="every question that waited")
    caught_up = scene.asker.answered(waited)
    await scene.show("both say 503", waited, later=caught_up - before)
    return {"outage_paused": paused, "outage_waited": len(waited), "outage_caught_up": caught_up}


def void_texts(stream: Stream) -> list[str]:
    """What was told in attempts that a later one made void."""
    return ["".join(text for _, text in sorted(stream.pieces[attempt].items())) for attempt in sorted(stream.pieces)[:-1]]


def is_whole(stream: Stream, texts: Collection[str]) -> bool:
    """Whether it ended in one provider's text alone, which is what its last attempt told."""
    return stream.completed is not None and stream.completed.text in texts and stream.is_true()


def _has_paused(host: Host) -> bool:
    return b'"outage_began"' in (host.data_dir / "logs" / f"{WORKER}.log").read_bytes()


async def _dead_letters(host: Host) -> int:
    found = 0
    async with scan(host.settings.kafka(), [Catalogue(host.settings.topic_prefix).name(DEAD_LETTERS)]) as records:
        async for _ in records:
            found += 1
    return found


async def _alone(host: Host, a: Provider) -> dict[str, Any]:
    """The control: the same outage without a second provider."""
    own = {"topic_prefix": "alone.", "group_prefix": "alone", "redis_prefix": "alone", "policy_file": str(UNSIGNED)}
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "logs").mkdir()
        lone = await furnish(host.stack, Path(folder), **_settings(a, **own))
        async with _asking(lone) as asker:
            await a.fault(kind="status", status=503)
            asked = await asker.ask_for(BOTH_OUT_S)
            unanswered = len(asked) - asker.answered(asked)
            await a.reset()
            await asker.ended(asked, what="every question of the control")
    print(f"  control, a alone and out: {unanswered} of {len(asked)} questions had no answer while it was out")
    return {"outage_control_queries": len(asked), "outage_control_unanswered": unanswered}
