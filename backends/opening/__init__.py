"""From what people name to a decoder: a definition, a schedule, a checkpoint, what was packed or compiled.

In: names and folders. Out: decoders and a checkpoint's text files. `mks.open` and the commands open models here.

Order of imports: `cannot_open`, `arguments`, `progress`, `find`, `load_pallas`, `artifact`, `compiled_folder`,
`compiled`, `load`.
"""
