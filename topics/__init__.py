"""What is said: payloads, the envelope around them, and the topics they travel on."""
