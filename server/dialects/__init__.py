"""How families of models write conversations, reasoning and calls."""
