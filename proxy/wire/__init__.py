"""The shapes of the two APIs: JSON to requests, deltas to JSON, events, errors. Knows no aiohttp."""
