"""The integer program of placement graphs; `docs/placement_graphs.md` has its equations."""
