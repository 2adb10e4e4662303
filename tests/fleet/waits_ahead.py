"""Lets calls that a worker took ahead wait for its processes for as long as a test needs."""

from toolfleet.workers.children import children

children.PATIENCE_S = 600.0
