"""The parts of the guard `links`: addresses in a text, the policy for them, and the data in them."""
