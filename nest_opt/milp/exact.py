"""Exact search (see `exact`)."""
