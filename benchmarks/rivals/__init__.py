"""The rivals of the gallery, their cases, and how the figures are reported."""
