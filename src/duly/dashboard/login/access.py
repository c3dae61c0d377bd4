"""Controls access to the dashboard: by a one-time link, or by a login with a password.

The link carries a token that works once, within five minutes. The first browser to open it gets a
session cookie and the token becomes void, so a link in a shell history or on a shared screen is
worthless. Everyone else logs in with a password. The gate is in front of everything, the websocket
included, and refuses every request that a foreign page could have made.
"""

from math import ceil

from duly.dashboard.login import login_page
from duly.dashboard.login.authentication import Authenticator, refusal
from duly.dashboard.login.gate_request import GateRequest, known_page, read_form
from duly.dashboard.login.link import Opening
from duly.dashboard.login.login_page import EXPIRED, FOREIGN, NEW_LINK, NOTES, OPENED, VOID
from duly.dashboard.login.responses import (
    App,
    Headers,
    Receive,
    Response,
    Scope,
    Send,
    redirect,
    with_security_headers,
)
from duly.dashboard.login.sessions import Session, Sessions
from duly.errors import DulyError

SESSION = "duly.session"
"""The key in the ASGI scope under which the app finds the session of a request."""


class Gate:
    """Wraps an ASGI app, and passes only requests with a session to it."""

    def __init__(
        self, app: App, authenticator: Authenticator, sessions: Sessions, host: str, port: int
    ) -> None:
        self.app = app
        self._authenticator = authenticator
        self._sessions = sessions
        self._host = host
        # Browsers share cookies between the ports of a host, so the name includes the port.
        self._cookie = f"duly_pages_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request with a session to the app, and respond to all others."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        request = GateRequest.of(scope)
        session = None if request.is_foreign(self._host) else self._session(request)
        is_gate_path = scope["type"] == "http" and request.path in ("/open", "/login", "/logout")
        if session is not None and not is_gate_path:
            scope[SESSION] = session
            scope["headers"] = [
                header for header in scope["headers"] if not header[0].startswith(b"x-forwarded-")
            ]
            await self.app(scope, receive, with_security_headers(send))
        elif scope["type"] == "websocket":
            # Closing before accepting makes the server reject the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            response = await self._respond(request, receive)
            await response(send)

    async def _respond(self, request: GateRequest, receive: Receive) -> Response:
        if request.is_foreign(self._host):
            return login_page.page(403, f"<p>{FOREIGN}</p>")
        match request.path, request.method:
            case "/open", _ if self._authenticator.has_link:
                return await self._open(request)
            case "/login", "GET":
                return self._show_form(request)
            case "/login", "POST":
                return await self._log_in(request, receive)
            case "/logout", "POST":
                return await self._log_out(request)
            case "/login" | "/logout", _:
                return login_page.page(405, "<p>This is not for looking at.</p>")
        return login_page.login_required(request.target, has_link=self._authenticator.has_link)

    async def _open(self, request: GateRequest) -> Response:
        session: Session | Opening = Opening.VOID
        if request.method == "GET":
            session = self._authenticator.open_link(request.query.get("token", ""))
        if isinstance(session, Opening):
            why = EXPIRED if session is Opening.EXPIRED else VOID
            is_logged_in = self._session(request) is not None
            return login_page.page(403, f"<p>{why} {OPENED if is_logged_in else NEW_LINK}</p>")
        # A page that refreshes to `/`, not a redirect: browsers do not send a strict cookie after
        # a redirect that began with a click on another site.
        return login_page.page(
            200,
            f"<p>{OPENED}</p>",
            head='<meta http-equiv="refresh" content="0; url=/">',
            headers=await self._start_session(request, session),
        )

    def _show_form(self, request: GateRequest) -> Response:
        target = known_page(request.query.get("next", "/"))
        if self._session(request) is not None:
            return redirect(target)
        return login_page.form(
            note=NOTES.get(request.query.get("why", ""), ""),
            target=target,
            tenant=request.query.get("tenant", ""),
            has_link=self._authenticator.has_link,
        )

    async def _log_in(self, request: GateRequest, receive: Receive) -> Response:
        fields = await read_form(request, receive)
        if fields is None:
            return login_page.form(status=400, error_text="Fill in the form, and send it again.")
        tenant, user = fields.get("tenant", "").strip(), fields.get("user", "").strip()
        target = known_page(fields.get("next", "/"))
        try:
            session = await self._authenticator.log_in(tenant, user, fields.get("password", ""))
        except (DulyError, OSError, TimeoutError) as error:
            status, error_text, wait = refusal(error)
            headers: Headers = []
            if wait is not None:
                headers.append((b"retry-after", str(ceil(wait.total_seconds())).encode()))
            return login_page.form(
                status=status,
                error_text=error_text,
                target=target,
                tenant=tenant,
                user=user,
                has_link=self._authenticator.has_link,
                headers=headers,
            )
        return redirect(target, *await self._start_session(request, session))

    async def _log_out(self, request: GateRequest) -> Response:
        reached = [
            await self._sessions.leave(session_id) for session_id in request.cookies(self._cookie)
        ]
        deleted_cookie = self._set_cookie(request, "", "; Max-Age=0")
        return redirect(
            login_page.form_url("/", "out" if all(reached) else "untold"), deleted_cookie
        )

    async def _start_session(self, request: GateRequest, session: Session) -> Headers:
        """Start a session under a new random id; the browser's previous session ends."""
        for session_id in request.cookies(self._cookie):
            await self._sessions.end(session_id)
        return [self._set_cookie(request, await self._sessions.begin(session))]

    def _set_cookie(
        self, request: GateRequest, session_id: str, attributes: str = ""
    ) -> tuple[bytes, bytes]:
        secure = "; Secure" if request.is_secure else ""
        text = f"{self._cookie}={session_id}; Path=/; HttpOnly; SameSite=Strict{secure}{attributes}"
        return b"set-cookie", text.encode()

    def _session(self, request: GateRequest) -> Session | None:
        sessions = (self._sessions.find(session_id) for session_id in request.cookies(self._cookie))
        return next((session for session in sessions if session is not None), None)
