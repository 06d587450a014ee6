"""Neural energies: networks whose output is the energy."""
