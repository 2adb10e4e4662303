"""Schedules: runs that begin by the clock, each tick once."""
