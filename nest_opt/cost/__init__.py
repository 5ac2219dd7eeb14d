"""The cost model: from profiles, network and job to one table of integers."""
