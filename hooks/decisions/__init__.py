"""The record of hooks' work: decisions for listeners, counts for the metrics, failures for the log."""
