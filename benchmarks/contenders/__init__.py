"""One file per contender, each with the settings that served it best on two cores."""
