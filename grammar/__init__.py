"""The grammar of the language, as package data: `mks.lark` for the parser, TextMate for editors."""
