"""The fleet's tools for loops of other frameworks: thin, each in a file of its own, with its framework as an extra."""
