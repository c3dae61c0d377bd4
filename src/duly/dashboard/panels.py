"""The parts of the page that are redrawn as a whole: the nodes, and a task's details."""

from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from duly.client.shapes.task_shapes import Task
from duly.dashboard import view
from duly.dashboard.view import Bar, NodeView


def text(tag: str, content: str) -> Any:
    """Return an element that shows `content` as plain text, whatever it contains."""
    return TextElement(tag=tag, text=content)


def draw_node(node: NodeView) -> None:
    """Draw a node with its status, its note and a bar for each kind of resource."""
    with ui.element("div").classes("node"):
        with ui.element("div").classes("who"):
            text("div", node.name).classes("name")
            with ui.element("div").classes("quiet"):
                text("span", node.status).classes("status").classes(_tone(node.status))
                text("span", f" · {node.note}")
        with ui.element("div").classes("bars"):
            for bar in node.bars:
                _draw_bar(bar)


def _draw_bar(bar: Bar) -> None:
    percent = round(bar.share * 100)
    with ui.element("div").classes("bar"):
        with ui.element("div").classes("words"):
            text("span", bar.kind)
            text("span", bar.text)
        track = ui.element("div").classes("track")
        track.props["role"] = "meter"
        track.props["aria-label"] = f"{bar.kind} in use"
        track.props["aria-valuemin"], track.props["aria-valuemax"] = "0", "100"
        track.props["aria-valuenow"] = str(percent)
        track.props["aria-valuetext"] = bar.text
        with track:
            ui.element("div").classes("fill").style(f"width: {percent}%")


def draw_details(task: Task, log: str) -> None:
    """Draw one task: its status and the reason for it, its fields, and the end of its log."""
    status = _tone(task["status"])
    with ui.element("div"):
        text("h2", view.visible(task["name"] or task["ref"] or "(no name)"))
        text("span", status).classes(f"status {status}")
    if reason := view.reason(task):
        text("div", reason).classes(f"why {status}")
    with ui.element("dl"):
        for label, fact in view.task_facts(task):
            text("dt", label)
            text("dd", fact)
    text("h3", "End of the log")
    if log:
        with ui.element("div").classes("tail").props('tabindex="0"'):
            text("pre", view.log_text(log))
    else:
        text("div", "No output so far.").classes("quiet")


def _tone(status: str) -> str:
    """Return the CSS class of a status; letters only, so that it is always a single class."""
    return status if status.isalpha() else "cancelled"
