"""The served model: an OpenAI-compatible front, continuous batching, hot swap, resume, rollout."""
