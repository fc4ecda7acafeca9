"""Trained models in use: scores, embeddings, predictions and likelihoods of texts, and an HTTP server."""
