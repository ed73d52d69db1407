"""How it looks: tables in the terminal, figures, and one HTML page that needs no network."""
