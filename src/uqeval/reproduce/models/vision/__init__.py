"""Image models into predictions: linear probes on backbones, a zoo trained from scratch, ImageNet classifiers."""
