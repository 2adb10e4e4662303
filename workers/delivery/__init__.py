"""One delivered call on its worker: believed, claimed, reported on, settled."""
