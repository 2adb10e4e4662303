"""Runs in Redis: their histories, who works on them, and what is kept beside them."""
