"""`python -m workers`: the same as `sluice`."""

from workers.cli import main

main()
