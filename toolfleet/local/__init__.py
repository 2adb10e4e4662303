"""A fleet on this machine: the embedded server, worker processes, and what keeps them alive."""
