"""The paper's studies on data that people labelled."""
