"""What every request passes, whatever it asks for: connections, limits, JSON, the access log.

In: bytes. Out: requests with an id, and answers as JSON.

Order of imports: `errors`, `connection`, `jsonbody`, `jsonwrite`, `edge`, `access_log`, `serve`.
"""
