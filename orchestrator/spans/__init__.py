"""What runs and calls leave for OpenTelemetry on the orchestrator's side; nothing where it is not traced."""
