"""Interceptors that come with it: what a model is shown, what its replies may say, what it is helped with."""
