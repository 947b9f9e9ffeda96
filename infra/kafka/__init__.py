"""Everything between Kafka and a handler."""
