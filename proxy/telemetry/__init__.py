"""What a server tells its operator: log lines, spans, metrics. Text of prompts and answers is in none."""
