"""What `deltawire` is made of; import from the public modules instead."""
