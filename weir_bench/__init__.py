"""`weir bench`: puts load on OpenAI-compatible servers, and tells how they bore it.

    arguments ─► plan ─► runner ─► load ─► client     what to measure; doing it; when to send; one request
                           └─► runs ─► measure        figures of a run: values in, values out
                                         └─► results ─► tables, page (with plots), JSON

Times are seconds everywhere but in figures and reports, where latencies are milliseconds, as in vLLM's.
"""
