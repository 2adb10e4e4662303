"""How calls stand, asked by anybody: handles, overviews, dead letters."""
