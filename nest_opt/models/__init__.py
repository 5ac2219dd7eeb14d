"""Importers: other formats to problems."""
