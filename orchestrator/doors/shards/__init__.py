"""One HTTP door over all shards: the API of each, and in front of them who says which one a request is for."""
