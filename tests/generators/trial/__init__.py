"""Many connections at once, at random, for minutes, and faults of every kind: is anything lost or wrong?"""
