"""What is checked while a kernel runs: bounds and alignment, initialisation; races have their place here."""
