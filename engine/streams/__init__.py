"""Streams of deltas outside of engines: recordings, and answers that can be rewound."""
