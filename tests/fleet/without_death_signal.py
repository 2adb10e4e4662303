"""Imported by a worker: it is on a system whose kernel does not end a process with its parent."""

from celery import platforms

platforms.set_pdeathsig = lambda _name: None
