"""Guards of harmful answers, judged by people's labels."""
