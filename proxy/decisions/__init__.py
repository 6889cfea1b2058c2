"""Hooks' decisions, for the operator of a service: who withheld what, for whom, why, and for how long."""
