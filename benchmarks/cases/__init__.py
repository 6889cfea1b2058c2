"""Texts with a value that a guard must find, from sources outside this project and made anew."""
