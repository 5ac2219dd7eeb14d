"""The verbs on pipelines: layers in stages, replicated over a cluster."""
