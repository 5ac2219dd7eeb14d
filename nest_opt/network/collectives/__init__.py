"""Times of collectives: algorithms, their choice and bounds."""
