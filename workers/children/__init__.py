"""The child processes of a pool: each runs one call at a time, and can be killed with it."""
