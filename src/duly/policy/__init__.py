"""What to decide: pure functions of values, the time and dice that are handed in."""
