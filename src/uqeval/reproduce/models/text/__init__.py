"""Language models into predictions: zero-shot classification of messages."""
