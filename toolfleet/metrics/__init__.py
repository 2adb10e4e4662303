"""What a process counts of its work, and how Prometheus is told of it.

Counting is a few additions to plain numbers of this process (`tallies`, `of_calls`, `of_runs`); what Prometheus wants
to read is made of them when it asks (`families`, `exposition`). What must survive a process is counted where it is
settled, in Redis.
"""
