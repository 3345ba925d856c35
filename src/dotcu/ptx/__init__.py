"""PTX text to instructions as values."""
