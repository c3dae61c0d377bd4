"""The last tasks as a table that stays where it is while it is refreshed.

NiceGUI's own table draws every row anew with each change, which takes the focus
away from whoever reads it with a keyboard.
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
    """A table of tasks; `choose` gets the id of the one that is clicked."""

    def __init__(self, choose: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._props["columns"] = COLUMNS
        self._props["rows"] = []
        self.on("choose", lambda event: choose(str(event.args)))

    def show(self, rows: Sequence[dict[str, str]]) -> None:
        """Show these tasks from now on."""
        self._props["rows"] = list(rows)
        self.update()
