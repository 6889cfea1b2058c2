"""Who may use which model, and under which policy: the settings of both, and what is built from them."""
