"""One orchestrator over several Redis servers: which of them a new run goes to, and which of them an id is on."""
