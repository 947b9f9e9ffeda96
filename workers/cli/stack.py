"""`sluice up` and `sluice demo`: the embedded stack, for a person or for a show."""

from pathlib import Path
from typing import Annotated, Literal

import anyio
import typer

from infra.telemetry import configure_logging
from workers.app import WORKERS, run_workers
from workers.cli import output
from workers.cli.output import JsonOption
from workers.demo import scenario
from workers.demo.host import hosted
from workers.demo.local_approver import local_approver

DataDir = Annotated[Path, typer.Option(help="Where data and logs go.")]
BrokerOption = Annotated[str, typer.Option("--broker", help="tansu, or apache-kafka where Java 17 and Maven are.")]


def up(
    data_dir: DataDir = Path(".sluice"),
    broker: BrokerOption = "tansu",
    kafka_bootstrap: Annotated[
        str | None, typer.Option(envvar="SLUICE_KAFKA_BOOTSTRAP", help="Use this cluster instead of starting a broker.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(envvar="SLUICE_REDIS_URL", help="Use this Redis instead of starting one.")
    ] = None,
    kafka_port: Annotated[int | None, typer.Option(help="A free one when left out.")] = None,
    redis_port: Annotated[int | None, typer.Option(help="A free one when left out.")] = None,
    workers: Annotated[bool, typer.Option(help="Also run the workers in this process.")] = True,  # noqa: FBT002 -- a flag of the command line
) -> None:
    """Start the embedded stack and the workers. Ctrl-C ends all of it; the data stays in the folder."""

    async def stay() -> None:
        kind = _broker_kind(broker)
        async with hosted(
            data_dir,
            broker=kind,
            kafka_bootstrap=kafka_bootstrap,
            redis_url=redis_url,
            kafka_port=kafka_port,
            redis_port=redis_port,
            **local_approver(data_dir),
        ) as host:
            configure_logging(host.settings.log_level)
            ends = host.stack.endpoints
            output.errors.print(
                f"Kafka  {ends.kafka_bootstrap} ({ends.broker})\nRedis  {ends.redis_url}\nmodel  {ends.model_base_url}"
            )
            output.errors.print(
                "[green]Ready.[/green] In another terminal: sluice ask acme 'Hello', sluice doctor, sluice --help", soft_wrap=True
            )
            if workers:
                await run_workers(host.settings, WORKERS)
            else:
                await anyio.sleep_forever()

    output.run(stay)


def demo(
    data_dir: Annotated[Path | None, typer.Option(help="Keep data and logs here; a folder of its own when left out.")] = None,
    broker: BrokerOption = "tansu",
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the whole job in about two minutes: triage, answers, approvals, dead letters, and a killed worker."""

    async def play() -> None:
        configure_logging("error")
        report = await scenario.play(data_dir, broker=_broker_kind(broker), say=_say)
        if as_json:
            output.print_json(report.as_dict())
        else:
            output.print_table(("what", "count"), report.rows(), title="What the topics say")
        report.check()

    output.run(play, as_json=as_json)


def _say(text: str) -> None:
    output.errors.print(text, soft_wrap=True)


def _broker_kind(name: str) -> Literal["tansu", "apache-kafka"]:
    if name == "tansu" or name == "apache-kafka":  # noqa: PLR1714 -- each comparison narrows the type
        return name
    raise typer.BadParameter("tansu or apache-kafka", param_hint="--broker")
