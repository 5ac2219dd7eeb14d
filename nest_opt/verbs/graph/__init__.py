"""The verbs on placement graphs: each layer on one of several kinds of devices."""
