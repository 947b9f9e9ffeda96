"""How it is done: one door per client library."""
