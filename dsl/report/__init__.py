"""What a schedule needs and reads."""
