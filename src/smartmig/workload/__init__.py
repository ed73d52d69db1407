"""What arrives: generators and trace readers, each a frozen dataclass of knobs that gives `Jobs`."""
