"""How a worker connects again when there are no file descriptors left, as a tool may have opened them all: it waits.

Celery ends a worker for that, with all calls that it has under way. They need no new descriptor, and end meanwhile.
"""

from __future__ import annotations

from typing import Any

from celery.worker.state import maybe_shutdown
from kombu.asynchronous.hub import Hub
from kombu.exceptions import OperationalError

from toolfleet.broker import EagerConnection
from toolfleet.descriptors import is_out_of_descriptors, until_descriptors_are_free


class PatientHub(Hub):  # type: ignore[misc]  # kombu ships no types
    """Celery's event loop. It needs a poller anew after each lost connection."""

    def _create_poller(self) -> None:
        while True:
            until_descriptors_are_free(maybe_shutdown)
            try:
                super()._create_poller()
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
            else:
                return


class PatientConnection(EagerConnection):
    """A connection that waits for its broker, and for the descriptors that it takes to reach it."""

    requires_hub = PatientHub

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, however long it takes. Raises what kombu's does, but not for want of descriptors."""
        while True:
            until_descriptors_are_free(maybe_shutdown)
            try:
                return super().ensure_connection(*args, **kwargs)
            except (OSError, OperationalError) as error:
                if not is_out_of_descriptors(error):
                    raise
