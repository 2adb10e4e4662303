"""Webhooks: what others are told of by a signed request of ours: owed with the event, sent until it is taken."""
