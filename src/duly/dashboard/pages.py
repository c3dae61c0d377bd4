"""The overview page: task counts, nodes and the last tasks, with the details of a task on a click.

A page holds no data of its own: every two seconds it takes the newest snapshot from its session's
feed and redraws what has changed. It shows what the session's key may see, and opens the login
form when the session has ended. Text from tenants is rendered as text, never as HTML or Markdown.
"""

from importlib.resources import files

from nicegui import ui

from duly.client.shapes.task_shapes import Task
from duly.dashboard import view
from duly.dashboard.feed import problem
from duly.dashboard.login.login_page import form_url
from duly.dashboard.login.sessions import Session
from duly.dashboard.panels import draw_details, draw_node, text
from duly.dashboard.task_table import TaskTable
from duly.dashboard.tenant_select import TenantSelect
from duly.dashboard.view import NodeView, Snapshot
from duly.errors import DulyError
from duly.model.task import FINAL_STATUSES

FIRST_TASK = "duly run -- echo hello"
SUSPENDED = "Your tenant is suspended: none of its tasks start, and you can only read."


class Overview:
    """One open page: its elements, and the snapshot that they show."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._feed = session.feed
        self._visitor = session.visitor
        self._shown: Snapshot | None = None
        self._tenant: str | None = None
        """The tenant that an administrator has chosen; None shows all."""
        self._open_task: str | None = None
        self._details_shown: object = None
        self._build()

    def _build(self) -> None:
        ui.add_css(files(__package__).joinpath("style.css").read_text())
        ui.add_head_html(
            f"<script>{files(__package__).joinpath('session_end.js').read_text()}</script>"
        )
        self._dark = ui.dark_mode(None)
        self._build_top()
        self._banner = ui.element("div").classes("banner").props('role="alert"')
        with self._banner:
            self._problem = text("span", "")
        self._banner.set_visibility(False)
        self._notes = text("div", "").classes("banner").props('role="status"')
        self._notes.set_visibility(False)
        if not self._visitor.may("read"):
            self._build_no_access()
            return
        self._build_counts()
        if self._visitor.may("admin"):
            with ui.element("section").classes("panel").props('aria-label="Nodes"'):
                with ui.element("h2"):
                    text("span", "Nodes")
                self._nodes = ui.element("div")
        with ui.element("section").classes("panel").props('aria-label="Last tasks"'):
            with ui.element("h2"):
                text("span", "Last tasks")
                text("span", "click one for its details").classes("quiet")
            self._build_tasks()
        self._build_details()

    def _build_top(self) -> None:
        with ui.element("header").classes("top"):
            text("h1", "Duly")
            self._server = text("span", "").classes("server quiet")
            self._live = text("span", "connecting").classes("live").props('role="status"')
            self._live.set_visibility(self._visitor.may("read"))
            if self._visitor.may("admin"):
                self._tenants = TenantSelect(self._choose_tenant)
            text("span", self._visitor.name).classes("visitor").props('aria-label="Logged in as"')
            theme = ui.element("button").classes("tool").props('type="button"')
            with theme.on("click", self._next_theme):
                self._theme_text = text("span", "Theme: auto")
            # A form and not an event: the response also deletes the browser's cookie.
            with ui.element("form").props('method="post" action="/logout"'):
                text("button", "Log out").classes("tool").props('type="submit"')

    def _build_no_access(self) -> None:
        scopes = ", ".join(sorted(self._visitor.scopes)) or "none"
        with ui.element("section").classes("panel empty"):
            text("div", f"Your user lacks the scope read; its scopes are {scopes}.")
            text("div", "Whoever manages your tenant can give it the scope read.").classes("quiet")

    def _build_details(self) -> None:
        self._dialog = ui.dialog().props('position="right" aria-label="Details of a task"')
        self._dialog.on("hide", self._close)
        with self._dialog, ui.element("div").classes("details"):
            close = text("button", "Close").classes("tool close").props('type="button"')
            close.on("click", self._dialog.close)
            self._details = ui.element("div").classes("facts")

    def _build_counts(self) -> None:
        self._numbers = {}
        self._windows = []
        with ui.element("section").classes("counts").props('aria-label="Tasks by status"'):
            for status in view.STATUSES:
                with ui.element("div").classes(f"count {status}"):
                    self._numbers[status] = text("div", view.NOTHING).classes("number")
                    with ui.element("div").classes("label"):
                        text("span", status)
                        if status in FINAL_STATUSES:
                            self._windows.append(text("span", "").classes("window"))

    def _build_tasks(self) -> None:
        self._table = TaskTable(self.open_task)
        self._empty = ui.element("div").classes("empty")
        with self._empty:
            text("div", "No tasks yet. Submit the first one from a terminal:")
            text("code", FIRST_TASK).classes("mono")
        self._empty.set_visibility(False)
        self._none_of_tenant = text("div", "This tenant has no tasks.").classes("empty quiet")
        self._none_of_tenant.set_visibility(False)

    def _open_login(self) -> None:
        """Open the login page, unless a logout is about to open it anyway."""
        why = self._session.end_notice
        if why is not None:
            keeps_task = why == "ended" and self._open_task
            ui.navigate.to(form_url(f"/?task={self._open_task}" if keeps_task else "/", why))

    async def refresh(self) -> None:
        """Show the newest snapshot, updating only what differs from the previous one."""
        # Before and after: a session that is over sends no request, and a response may end it.
        tenant = self._tenant
        new = None if self._session.is_over else await self._feed.latest(tenant)
        if new is None or self._session.is_over:
            self._open_login()
            return
        if tenant != self._tenant:
            return  # Another one was chosen meanwhile.
        old, self._shown = self._shown, new
        if old is new:
            return
        self._show_health(new)
        if self._visitor.may("read"):
            await self._show(new, old)

    async def _choose_tenant(self, tenant: str | None) -> None:
        """Show the tasks of one tenant, or of all."""
        self._tenant = tenant
        await self.refresh()

    async def _show(self, new: Snapshot, old: Snapshot | None) -> None:
        self._show_counts(new)
        if self._visitor.may("admin") and (old is None or old.tenants != new.tenants):
            self._tenants.show(new.tenants)
        if self._visitor.may("admin") and (old is None or old.nodes != new.nodes):
            self._show_nodes(new.nodes)
        if old is None or old.tasks != new.tasks:
            self._table.show(new.tasks)
        has_counts = bool(new.counts)
        self._table.set_visibility(bool(new.tasks))
        is_empty = has_counts and not new.tasks
        self._empty.set_visibility(is_empty and self._tenant is None)
        self._none_of_tenant.set_visibility(is_empty and self._tenant is not None)
        if self._open_task and new.problem is None:
            await self._show_task(self._open_task)

    def _show_health(self, new: Snapshot) -> None:
        self._server.text = new.server
        is_unreachable = new.problem is not None
        self._live.text = "not reachable" if is_unreachable else "live"
        self._live.classes(add="gone") if is_unreachable else self._live.classes(remove="gone")
        stale_note = "This is the last known state. Trying again."
        self._problem.text = f"{new.problem} {stale_note}" if is_unreachable else ""
        self._banner.set_visibility(is_unreachable)
        notes = [SUSPENDED] if new.is_suspended else []
        self._notes.text = " ".join([*notes, new.drift]).strip()
        self._notes.set_visibility(bool(self._notes.text))

    def _show_counts(self, new: Snapshot) -> None:
        for status, number in self._numbers.items():
            number.text = view.count(new.counts[status]) if new.counts else view.NOTHING
        for window in self._windows:
            window.text = f"{new.window_hours} h" if new.counts else ""

    def _show_nodes(self, nodes: tuple[NodeView, ...]) -> None:
        self._nodes.clear()
        with self._nodes:
            if not nodes:
                text("div", "No nodes yet, so no task can start.").classes("empty quiet")
            for node in nodes:
                draw_node(node)

    async def open_task(self, task: str) -> None:
        """Show the details of a task beside the overview."""
        if task.isdecimal() and self._visitor.may("read"):
            self._open_task, self._details_shown = task, None
            self._details.clear()
            self._dialog.open()
            ui.navigate.history.replace(f"/?task={task}")
            await self._show_task(task)

    def _close(self) -> None:
        self._open_task = None
        ui.navigate.history.replace("/")

    async def _show_task(self, task: str) -> None:
        content: str | tuple[Task, str]
        try:
            content = await self._feed.details(task)
        except (DulyError, OSError, TimeoutError) as error:
            content = problem(error)
        if task == self._open_task:
            self._redraw_details(content)

    def _redraw_details(self, content: str | tuple[Task, str]) -> None:
        # Only if something has changed: a redraw loses the scroll position in the log.
        if content == self._details_shown:
            return
        self._details_shown = content
        self._details.clear()
        with self._details:
            if isinstance(content, str):
                text("p", content)
            else:
                draw_details(*content)

    def _next_theme(self) -> None:
        self._dark.value = {None: False, False: True, True: None}[self._dark.value]
        name = {None: "auto", False: "light", True: "dark"}[self._dark.value]
        self._theme_text.text = f"Theme: {name}"
