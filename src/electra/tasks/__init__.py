"""Fine-tuning: what is asked of a text, from examples to scores."""
