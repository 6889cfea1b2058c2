"""How the tests look for what breaks.

The suite tries the same examples at every run, so that it says the same of the same code.
`--hypothesis-profile search` looks for new ones; what it finds becomes an `@example`.
"""

import hypothesis

# Time is no measure on a machine that does other things as well.
hypothesis.settings.register_profile("weir", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("weir")
