"""A tool's own code and what stands around it: interceptors, its result, the processes it started."""
