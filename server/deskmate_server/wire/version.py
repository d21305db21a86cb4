"""The one version of the distribution; the build reads it here."""

VERSION = "0.1.0"
"""As PEP 440 writes it."""
