"""How families of models write conversations, reasoning and calls.

In: messages and tools; an answer's text. Out: prompts; content, reasoning and calls.

Order of imports: `channels`, `formats`, `relaxed`, `tagged`, `calls_json`, `calls_xml`, `kimi_k3_parser`, `tools`,
`conversation`, `kimi_k3_grammar`, `kimi_k3`, `xml_values`, `xml_grammar`, `jinja_dialect`, `choice`.
"""
