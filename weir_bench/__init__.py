"""`weir bench`: puts load on OpenAI-compatible servers, and measures latency and throughput.

    arguments ─► plan ─► runner ─► load ─► client     what to measure; running it; when to send; one request
                           └─► runs ─► measure        figures of a run: values in, values out
                                         └─► results ─► tables, page (with plots), JSON

Times are in seconds. Only figures and reports give latencies in milliseconds, as vLLM's do.
"""
