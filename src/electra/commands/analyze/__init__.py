"""`electra analyze`: what a trained model knows."""
