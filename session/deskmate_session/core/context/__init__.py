"""What the model sees: everything that goes into a request is built here, from folded state alone."""
