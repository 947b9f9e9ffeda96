"""Scoring what an agent did against what was right: answer, calls, route and end state, each on its own."""
