"""The language: from text to a checked Program, and the `mks` command.

In: a definition's text. Out: Models, Schedules, Programs, diagnostics.

Order of imports: `cache`, `decoder`, `records`, `codes`, `source`, `diagnostics`, `installed`, `targets`, `text`,
`model`, `render`, `collectives`, `schedule`, `frontend`, `program`, `version`, `lsp`, `commands`.
"""
