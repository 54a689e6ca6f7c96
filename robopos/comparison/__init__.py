"""The study of positions by index against positions by time."""
