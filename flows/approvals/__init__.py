"""Approvals: who must say yes, what counts as a decision, and what proves it. Pure."""
