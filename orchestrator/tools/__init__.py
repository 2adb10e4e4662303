"""What a model may call, and what answers it without a worker."""
