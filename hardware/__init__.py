"""Device catalogs as YAML, and the measured runs that the efficiency factors are fitted on."""
