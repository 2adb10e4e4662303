"""Takes turns until a run ends or rests, and says which runs are worked on here."""
