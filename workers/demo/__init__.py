"""The demo: the main job from end to end, on real parts and real data, with its accounts checked from the topics."""
