"""The main job: readers -> fingerprints -> index -> pairs -> clusters -> report."""
