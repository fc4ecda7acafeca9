"""What a trained model knows."""
