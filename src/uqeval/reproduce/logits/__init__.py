"""Predictions of many models on disk."""
