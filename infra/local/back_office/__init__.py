"""A shop's back office over HTTP, for demos and tests: it keeps keys, fails on demand, and remembers what it really did."""
