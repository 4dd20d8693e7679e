"""What scripts may import while they run inside Larder."""
