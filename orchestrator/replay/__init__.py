"""Stored runs taken through the turn loop again, offline: to compare what comes out, or with another model."""
