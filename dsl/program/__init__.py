"""What one core does in one step: everything that moves is explicit."""
