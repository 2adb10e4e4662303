"""Protocol classes whose methods are runs."""
