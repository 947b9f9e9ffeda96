"""What is decided: pipelines, agents and policy, with no Kafka, Redis, environment or clock."""
