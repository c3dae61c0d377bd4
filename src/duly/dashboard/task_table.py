"""The table of the last tasks, which is updated in place.

NiceGUI's own table redraws every row with each change, which takes the focus away from people who
use a keyboard.
"""

from collections.abc import Awaitable, Callable, Sequence

from nicegui.element import Element

COLUMNS = {
    "status": "Status",
    "name": "Name",
    "id": "Id",
    "owner": "Tenant / user",
    "waited": "Waited",
    "ran": "Ran",
    "node": "Node",
    "reason": "Reason",
}


class TaskTable(Element, component="task_table.js"):  # type: ignore[misc,call-arg]
    """A table of tasks; `choose` is called with the id of the task that is clicked."""

    def __init__(self, choose: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._props["columns"] = COLUMNS
        self._props["rows"] = []
        self.on("choose", lambda event: choose(str(event.args)))

    def show(self, rows: Sequence[dict[str, str]]) -> None:
        """Replace the tasks in the table."""
        self._props["rows"] = list(rows)
        self.update()
