"""Trains and judges the model of the guard `injection`, on data that `make data` fetches."""
