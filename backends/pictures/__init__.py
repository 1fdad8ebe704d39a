"""A Program's memory and step for the eye: drawings, a trace, and a page with the definition's source."""
