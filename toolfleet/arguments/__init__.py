"""What a model wrote for a call, read into what its tool is called with."""
