"""The verbs on each kind of problem; `nest_opt.api` chooses between the two."""
