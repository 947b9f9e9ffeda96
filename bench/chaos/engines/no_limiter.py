"""Control: ours, except that no worker asks the others before it calls the model. Together they are above its limit (I16)."""

from dataclasses import replace

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.models.metering import Unmetered


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    await ours.run(spec, replace(perform, meter=Unmetered()))
