"""`/v1/responses`: the output's items as they grow, and the events that tell of it."""

from __future__ import annotations

import copy
from typing import Any

from ..dialects.channels import Kind, Piece
from .shapes import new_id

_OF_KIND = {
    Kind.REASONING: "reasoning",
    Kind.CONTENT: "message",
    Kind.CALL: "function_call",
    Kind.ARGUMENTS: "function_call",
}


class Output:
    """Takes the pieces of an answer and gives events, which are numbered; `items` are those so far."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._open = False
        self._number = 0
        # Scores of the tokens of each message, and how many of the last one's were sent.
        self._scores: dict[int, list[dict[str, Any]]] = {}
        self._scores_sent = 0

    def event(self, kind: str, **more: Any) -> dict[str, Any]:
        """The next event."""
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **more}

    def score(self, message: int, entry: dict[str, Any]) -> None:
        """A token's score, in the message of this number, before the piece that ends the message."""
        self._scores.setdefault(message, []).append(entry)

    def push(self, piece: Piece) -> list[dict[str, Any]]:
        """The events that a piece gives."""
        out = []
        kind = _OF_KIND[piece.kind]
        if self._open and (piece.kind is Kind.CALL or self.items[-1]["type"] != kind):
            out += self.close("completed")
        if not self._open:
            out += self._begin(kind, piece.text)
        item = self.items[-1]
        if piece.kind is Kind.ARGUMENTS:
            item["arguments"] += piece.text
            out.append(self._of_item("function_call_arguments.delta", delta=piece.text))
        elif piece.kind is not Kind.CALL:
            item["content"][0]["text"] += piece.text
            out.append(self._of_part("delta", delta=piece.text, **self._new_scores()))
        return out

    def close(self, status: str) -> list[dict[str, Any]]:
        """The events that end the last item, if it is open."""
        if not self._open:
            return []
        self._open = False
        item = self.items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            done = {"arguments": item["arguments"], "name": item["name"]}
            return [self._of_item("function_call_arguments.done", **done), self._item("done")]
        part = item["content"][0]
        scores = {"logprobs": self._message_scores()} if item["type"] == "message" else {}
        part |= scores
        return [
            self._of_part("done", text=part["text"], **scores),
            self._of_item("content_part.done", content_index=0, part=copy.copy(part)),
            self._item("done"),
        ]

    def _begin(self, kind: str, text: str) -> list[dict[str, Any]]:
        self._open = True
        if kind == "function_call":
            call = {"call_id": new_id("call_"), "name": text, "arguments": ""}
            self.items.append({"id": new_id("fc_"), "type": kind, "status": "in_progress", **call})
            return [self._item("added")]
        if kind == "message":
            self.items.append(
                {"id": new_id("msg_"), "type": kind, "status": "in_progress", "role": "assistant", "content": []}
            )
            self._scores_sent = 0
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            self.items.append(
                {"id": new_id("rs_"), "type": kind, "status": "in_progress", "summary": [], "content": []}
            )
            part = {"type": "reasoning_text", "text": ""}
        added = self._item("added")
        self.items[-1]["content"].append(part)
        return [added, self._of_item("content_part.added", content_index=0, part=copy.copy(part))]

    def _item(self, what: str) -> dict[str, Any]:
        item = copy.deepcopy(self.items[-1])
        return self.event(f"response.output_item.{what}", output_index=len(self.items) - 1, item=item)

    def _of_item(self, kind: str, **more: Any) -> dict[str, Any]:
        ids = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return self.event(f"response.{kind}", **ids, **more)

    def _of_part(self, what: str, **more: Any) -> dict[str, Any]:
        if self.items[-1]["type"] == "reasoning":
            return self._of_item(f"reasoning_text.{what}", content_index=0, **more)
        return self._of_item(f"output_text.{what}", content_index=0, **more)

    def _message_scores(self) -> list[dict[str, Any]]:
        """The scores of the last message."""
        return self._scores.get(sum(item["type"] == "message" for item in self.items) - 1, [])

    def _new_scores(self) -> dict[str, Any]:
        """Those that no event told of yet."""
        if self.items[-1]["type"] != "message":
            return {}
        new = self._message_scores()[self._scores_sent :]
        self._scores_sent += len(new)
        return {"logprobs": new}
