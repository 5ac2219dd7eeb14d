"""Bounds, certificates and brute force."""
