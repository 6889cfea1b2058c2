"""A server's log lines, spans and metrics. Text of prompts and answers is in none."""
