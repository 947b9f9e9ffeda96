"""Servers on this machine, started and ended by us: what the demo, `sluice up` and the tests run on."""
