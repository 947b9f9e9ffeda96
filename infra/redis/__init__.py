"""Everything kept in Redis."""
