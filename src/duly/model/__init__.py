"""What things are: frozen values without any I/O."""
