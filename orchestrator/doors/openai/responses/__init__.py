"""OpenAI's Responses, served by runs: asked for, followed, resumed, listed."""
