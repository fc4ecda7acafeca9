"""What a network is trained to do: one small module a file."""
