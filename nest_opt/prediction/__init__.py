"""What a run takes whose configuration is given as launchers state it."""
