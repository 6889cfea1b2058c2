"""A benchmark of guard servers for language models, on streams: leaks, held text, failures, cost."""
