"""Controls access to the dashboard: by a one-time link, or by a login with a password.

The link carries a token that works once, within five minutes. The first browser to open it gets a
session cookie and the token becomes void, so a link in a shell history or on a shared screen is
worthless. Everyone else logs in with a password. The gate is in front of everything, the websocket
included, and refuses every request that a foreign page could have made.
"""

from math import ceil

from duly.dashboard import login_page
from duly.dashboard.answers import App, Headers, Receive, Reply, Scope, Send, go_on, guarded
from duly.dashboard.entrance import Entrance, refusal
from duly.dashboard.link import Opening
from duly.dashboard.login_page import EXPIRED, FOREIGN, NEW_LINK, NOTES, OPENED, VOID
from duly.dashboard.sessions import Session, Sessions
from duly.dashboard.visit import Visit, own_page, read_form
from duly.errors import DulyError

SESSION = "duly.session"
"""The key in the ASGI scope under which the app finds the session of a request."""


class Gate:
    """Wraps an ASGI app, and passes only requests with a session to it."""

    def __init__(
        self, app: App, entrance: Entrance, sessions: Sessions, host: str, port: int
    ) -> None:
        self.app = app
        self._entrance = entrance
        self._sessions = sessions
        self._host = host
        # Browsers share cookies between the ports of a host, so the name includes the port.
        self._cookie = f"duly_pages_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request with a session to the app, and respond to all others."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        visit = Visit.of(scope)
        session = None if visit.is_foreign(self._host) else self._session(visit)
        own = scope["type"] == "http" and visit.path in ("/open", "/login", "/logout")
        if session is not None and not own:
            scope[SESSION] = session
            scope["headers"] = [
                header for header in scope["headers"] if not header[0].startswith(b"x-forwarded-")
            ]
            await self.app(scope, receive, guarded(send))
        elif scope["type"] == "websocket":
            # Closing before accepting makes the server reject the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            reply = await self._reply(visit, receive)
            await reply(send)

    async def _reply(self, visit: Visit, receive: Receive) -> Reply:
        if visit.is_foreign(self._host):
            return login_page.page(403, f"<p>{FOREIGN}</p>")
        match visit.path, visit.method:
            case "/open", _ if self._entrance.has_link:
                return await self._open(visit)
            case "/login", "GET":
                return self._show_form(visit)
            case "/login", "POST":
                return await self._log_in(visit, receive)
            case "/logout", "POST":
                return await self._log_out(visit)
            case "/login" | "/logout", _:
                return login_page.page(405, "<p>This is not for looking at.</p>")
        return login_page.closed(visit.where, has_link=self._entrance.has_link)

    async def _open(self, visit: Visit) -> Reply:
        session: Session | Opening = Opening.VOID
        if visit.method == "GET":
            session = self._entrance.open_link(visit.query.get("token", ""))
        if isinstance(session, Opening):
            why = EXPIRED if session is Opening.EXPIRED else VOID
            known = self._session(visit) is not None
            return login_page.page(403, f"<p>{why} {OPENED if known else NEW_LINK}</p>")
        # A page that refreshes to `/`, not a redirect: browsers do not send a strict cookie after
        # a redirect that began with a click on another site.
        return login_page.page(
            200,
            f"<p>{OPENED}</p>",
            head='<meta http-equiv="refresh" content="0; url=/">',
            headers=await self._let_in(visit, session),
        )

    def _show_form(self, visit: Visit) -> Reply:
        where = own_page(visit.query.get("next", "/"))
        if self._session(visit) is not None:
            return go_on(where)
        return login_page.form(
            note=NOTES.get(visit.query.get("why", ""), ""),
            where=where,
            tenant=visit.query.get("tenant", ""),
            has_link=self._entrance.has_link,
        )

    async def _log_in(self, visit: Visit, receive: Receive) -> Reply:
        given = await read_form(visit, receive)
        if given is None:
            return login_page.form(status=400, wrong="Fill in the form, and send it again.")
        tenant, user = given.get("tenant", "").strip(), given.get("user", "").strip()
        where = own_page(given.get("next", "/"))
        try:
            session = await self._entrance.log_in(tenant, user, given.get("password", ""))
        except (DulyError, OSError, TimeoutError) as error:
            status, wrong, wait = refusal(error)
            later: Headers = []
            if wait is not None:
                later.append((b"retry-after", str(ceil(wait.total_seconds())).encode()))
            return login_page.form(
                status=status,
                wrong=wrong,
                where=where,
                tenant=tenant,
                user=user,
                has_link=self._entrance.has_link,
                headers=later,
            )
        return go_on(where, *await self._let_in(visit, session))

    async def _log_out(self, visit: Visit) -> Reply:
        told = [await self._sessions.leave(shown) for shown in visit.cookies(self._cookie)]
        gone = self._set_cookie(visit, "", "; Max-Age=0")
        return go_on(login_page.address("/", "out" if all(told) else "untold"), gone)

    async def _let_in(self, visit: Visit, session: Session) -> Headers:
        """Start a session under a new random id; the browser's previous session ends."""
        for shown in visit.cookies(self._cookie):
            await self._sessions.end(shown)
        return [self._set_cookie(visit, await self._sessions.begin(session))]

    def _set_cookie(self, visit: Visit, shown: str, more: str = "") -> tuple[bytes, bytes]:
        secure = "; Secure" if visit.is_secure else ""
        text = f"{self._cookie}={shown}; Path=/; HttpOnly; SameSite=Strict{secure}{more}"
        return b"set-cookie", text.encode()

    def _session(self, visit: Visit) -> Session | None:
        found = (self._sessions.find(shown) for shown in visit.cookies(self._cookie))
        return next((session for session in found if session is not None), None)
