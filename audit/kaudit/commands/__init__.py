"""Commands with more to say than fits the tree of cli.py: one module each, registered there by one line."""
