"""The parts of Celery that are replaced here, and the steps that hang into its worker."""
