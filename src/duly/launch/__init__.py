"""The composition roots: settings become parts, and run until they are stopped."""
