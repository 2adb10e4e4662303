"""The page: what the fleet does, for people with a browser, from the server that has the HTTP API.

Rendered here, from the store that everybody reads and with the same functions; decides nothing, keeps nothing of its
own. Everything works without JavaScript but the news that come by themselves.
"""
