"""What is done to a stream of deltas outside of engines: recordings, and answers that can be taken back."""
