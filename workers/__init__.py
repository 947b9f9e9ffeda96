"""Who does it: handlers, and the place where the parts meet."""
