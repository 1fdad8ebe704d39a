"""OpenAI's protocol over HTTP: one file reads a request and shapes its answer.

In: requests as JSON. Out: sequences for the engine; answers and events.

Order of imports: `builders`, `content_scores`, `generation`, `messages`, `metrics`, `page`, `params`, `reader`,
`shapes`, `chat`, `completions`, `respond`, `responses_input`, `responses_output`, `responses`, `service`, `app`,
`build`.
"""
