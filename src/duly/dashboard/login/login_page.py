"""Renders the login page, its notices and its error messages."""

from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import urlencode

from duly.dashboard.login.responses import Headers, Response

OR_LINK = (
    "Or open a link that <code>duly link</code> prints on the machine of <code>duly up</code>."
)
VOID = "This link has been used, or there is a newer one: a link works once."
EXPIRED = "This link has expired: a link works for five minutes."
NEW_LINK = (
    "Run <code>duly link</code> on the machine of <code>duly up</code>, as the same user, for a "
    "new one, or <a href='/login'>log in with a password</a>."
)
OPENED = "You are in. <a href='/'>Go to the overview.</a>"
FOREIGN = "Another page sent you here, or this is not the dashboard's address. Open it directly."
NOTES = {
    "ended": "Your session has ended. Log in to go on where you were.",
    "out": "You have logged out.",
    "untold": "You have logged out here. The server could not be told, so what you logged in with "
    "ends there by itself, 12 hours after you did.",
}
"""Notices above the form, by the parameter `why` of its URL."""
FORM = Template("""$notice
<form method="post" action="/login">
<input type="hidden" name="next" value="$next">
<label>Tenant<input name="tenant" value="$tenant" autocomplete="organization" required
 maxlength="100"
 autocapitalize="none" spellcheck="false"$focus_tenant></label>
<label>User<input name="user" value="$user" autocomplete="username" required maxlength="100"
 autocapitalize="none" spellcheck="false"$focus_user></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required
 maxlength="1000"$focus_password></label>
<button type="submit">Log in</button>
</form>
$link""")


def page(status: int, content: str, *, head: str = "", headers: Headers | None = None) -> Response:
    """Return a page with `content`, which is HTML."""
    template = Template(files(__package__).joinpath("login.html").read_text(encoding="utf-8"))
    return Response(status, template.substitute(content=content, head=head), headers or [])


def form(
    *,
    status: int = 200,
    error_text: str = "",
    note: str = "",
    target: str = "/",
    tenant: str = "",
    user: str = "",
    has_link: bool = False,
    headers: Headers | None = None,
) -> Response:
    """Return the login page; the password must be typed again after every error."""
    notice = f'<p class="wrong" role="alert">{escape(error_text)}</p>' if error_text else ""
    if note and not error_text:
        notice = f'<p class="note" role="status">{escape(note)}</p>'
    focused = "tenant" if not tenant else "user" if not user else "password"
    content = FORM.substitute(
        {f"focus_{name}": "" for name in ("tenant", "user", "password")}
        | {f"focus_{focused}": " autofocus"},
        notice=notice,
        next=escape(target),
        tenant=escape(tenant),
        user=escape(user),
        link=f'<p class="quiet">{OR_LINK}</p>' if has_link else "",
    )
    return page(status, content, headers=headers)


def login_required(target: str, *, has_link: bool) -> Response:
    """Return the page for requests without a session, which refreshes to the login form.

    It is not a redirect: a browser that comes from another site sends its strict cookie neither
    here nor after a redirect. After a refresh of our own page it does, and if it has a session,
    the form redirects it to `target`.
    """
    url = escape(form_url(target), quote=True)
    text = f'<a href="{url}">To see this page, log in.</a>'
    content = f"<p>{text}</p>" + (f'<p class="quiet">{OR_LINK}</p>' if has_link else "")
    refresh = f'<meta http-equiv="refresh" content="0; url={url}">'
    return page(401, content, head=refresh)


def form_url(target: str, why: str = "") -> str:
    """Return the URL of the login form, which redirects to `target` after the login."""
    parameters = {"next": target} if target != "/" else {}
    if why:
        parameters["why"] = why
    return f"/login?{urlencode(parameters)}" if parameters else "/login"
