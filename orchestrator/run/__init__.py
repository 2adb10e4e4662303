"""A run as a value: what may happen to it, what has, and what follows. No await, no clock, no Redis."""
