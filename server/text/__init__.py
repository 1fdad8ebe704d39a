"""From tokens to text and back."""
