"""Jobs in other systems: submitted by a tool, asked about by any worker that knows it, ended once."""
