"""AG-UI, the protocol of chat front ends, served by runs: its events, its interrupts, its threads."""
