"""How fast an installation is: what `duly bench` measures, and how figures are told."""
