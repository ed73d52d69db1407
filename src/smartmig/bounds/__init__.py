"""What nobody can beat."""
