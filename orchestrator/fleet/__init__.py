"""The wall to the workers: what they offer, calls on their way out, results on their way in. Knows no run."""
