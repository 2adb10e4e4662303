"""Imported by a worker: it is on a system whose kernel does not end a process with its parent."""

from toolfleet.workers.celery import pool_child

pool_child._libc = None
