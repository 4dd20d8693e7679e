"""Not here yet."""
