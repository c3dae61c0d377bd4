"""Submits children of a running task."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from duly.client.call import encode
from duly.client.functions.handle import Handle
from duly.client.functions.submission import request

if TYPE_CHECKING:
    from duly.client.functions.context import Context
    from duly.client.functions.task import Task

R = TypeVar("R")


def submit_child(
    context: "Context",
    task: "Task[Any, R, Any]",
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Handle[R]:
    """Submit a child through the channel of the attempt.

    Its idempotency key is made of the parent and the call, so that the next attempt gets the same
    child; equal calls of one attempt are numbered.
    """
    fields, upload = request(task, args, kwargs)
    if upload is not None:
        fields["artifact"] = task.app.client.upload_data(upload)
    fields = json.loads(encode(fields))  # times and durations as a request has them
    if "idempotency_key" not in fields:
        text = json.dumps(fields, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        fields["idempotency_key"] = f"{context.task_id}-{digest}-{context.ordinal(digest)}"
    return Handle(task.app, context.channel.submit(fields)["id"], task.parameters)
