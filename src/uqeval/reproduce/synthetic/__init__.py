"""The paper's synthetic study and its temperature experiment."""
