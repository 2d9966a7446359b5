"""Implementation of `deltawire`; import from the public modules instead."""
