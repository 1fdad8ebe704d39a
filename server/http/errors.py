"""What a client is told when a request is not answered."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A refusal or failure in the terms of OpenAI's error object."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the client can mend it; `param` is the field at fault."""
    return ApiError(message, param=param, code=code)


def unsupported(param: str) -> ApiError:
    """400: a field that would change the answer and has no effect here."""
    return bad_request(f"`{param}` is not supported by this server", param, "unsupported_parameter")


def not_found(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """404."""
    return ApiError(message, status=404, param=param, code=code)


def overloaded(seconds: int) -> ApiError:
    """429: the queue is full; worth another try after `seconds`."""
    message = f"the queue is full; try again in {seconds} s"
    headers = {"retry-after": str(seconds)}
    return ApiError(message, status=429, type="rate_limit_error", code="rate_limit_exceeded", headers=headers)


def busy(seconds: int, work: str = "grammars are being built") -> ApiError:
    """503: too much of one kind of work is under way; worth another try after `seconds`."""
    message = f"other requests' {work}; try again in {seconds} s"
    return ApiError(message, status=503, type="server_error", headers={"retry-after": str(seconds)})


def unauthorized() -> ApiError:
    """401: no key, or none that is known."""
    message, headers = "an API key is needed: `Authorization: Bearer KEY`", {"www-authenticate": "Bearer"}
    return ApiError(message, status=401, code="invalid_api_key", headers=headers)


def crowded() -> ApiError:
    """503: too many requests are under way."""
    headers = {"retry-after": "2"}
    return ApiError("too many requests at a time", status=503, type="server_error", code="overloaded", headers=headers)


def loading() -> ApiError:
    """503: the model is not there yet."""
    headers = {"retry-after": "5"}
    return ApiError("the model is being loaded", status=503, type="server_error", code="loading", headers=headers)


def stopping() -> ApiError:
    """503: the server takes no new work."""
    return ApiError("the server is stopping", status=503, type="server_error", headers={"retry-after": "5"})


def too_slow() -> ApiError:
    """504: the request was not answered in the time that requests have."""
    return ApiError("the request took longer than this server allows", status=504, type="server_error", code="timeout")


def failed(message: str) -> ApiError:
    """500: our own failure; `message` holds nothing internal."""
    return ApiError(message, status=500, type="server_error")
