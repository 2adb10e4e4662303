"""A fleet at work for a long time while its processes are killed: is anything lost, done twice, or never given back?

`python -m benchmarks.soak`. Judged by a ledger that tools and models write themselves, outside the fleet. Of the two
workers and the two orchestrators one each is killed again and again; the others live through all of it, so that what
they hold at the end says whether anything grows.
"""
