"""Model architecture catalogs as YAML."""
