"""The paper's claims, tried on random populations."""
