"""The shapes in which other programs ask people and hear from them, to ours and back. Pure.

What a shape cannot say is refused with `InexpressibleError`, and nothing is left out quietly. Signatures are made for our shape.
"""
