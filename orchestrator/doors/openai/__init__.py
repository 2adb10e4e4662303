"""OpenAI's Chat Completions and Responses, served by runs."""
