"""The state that processes share: stored responses, and how many requests each caller has under way."""
