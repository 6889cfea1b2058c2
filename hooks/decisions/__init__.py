"""What hooks did: decisions for those who listen, counts for the metrics, failures for the log."""
