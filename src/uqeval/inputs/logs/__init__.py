"""Logs of language-model evaluations, a module for each format: read as they are, without their packages."""
