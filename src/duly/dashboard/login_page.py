"""The page on which one logs in, and what it says when that comes to nothing."""

from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import urlencode

from duly.dashboard.answers import Headers, Reply

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
FOREIGN = "This address is not served here, or another page has sent you. Open the pages yourself."
NOTES = {
    "ended": "Your session has ended. Log in to go on where you were.",
    "out": "You have logged out.",
    "untold": "You have logged out here. The server could not be told, so what you logged in with "
    "ends there by itself, 12 hours after you did.",
}
"""What can be said on top of the form, by the word in the address."""
FORM = Template("""$said
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


def page(status: int, content: str, *, head: str = "", headers: Headers | None = None) -> Reply:
    """Return a page with `content`, which is HTML."""
    template = Template(files(__package__).joinpath("login.html").read_text(encoding="utf-8"))
    return Reply(status, template.substitute(content=content, head=head), headers or [])


def form(
    *,
    status: int = 200,
    wrong: str = "",
    note: str = "",
    where: str = "/",
    tenant: str = "",
    user: str = "",
    has_link: bool = False,
    headers: Headers | None = None,
) -> Reply:
    """Return the page to log in on; the password is to be typed again every time."""
    said = f'<p class="wrong" role="alert">{escape(wrong)}</p>' if wrong else ""
    if note and not wrong:
        said = f'<p class="note" role="status">{escape(note)}</p>'
    first = "tenant" if not tenant else "user" if not user else "password"
    content = FORM.substitute(
        {f"focus_{name}": "" for name in ("tenant", "user", "password")}
        | {f"focus_{first}": " autofocus"},
        said=said,
        next=escape(where),
        tenant=escape(tenant),
        user=escape(user),
        link=f'<p class="quiet">{OR_LINK}</p>' if has_link else "",
    )
    return page(status, content, headers=headers)


def closed(where: str, *, has_link: bool) -> Reply:
    """Return the page for whoever has not been let in: it goes on to the form by itself.

    It is no redirect, because a browser that comes from some other page does not show its
    strict cookie here, nor after a redirect; going on from our own page it does, and if it was
    let in before, the form sends it on to where it was going.
    """
    target = escape(address(where), quote=True)
    text = f'<a href="{target}">To see this page, log in.</a>'
    content = f"<p>{text}</p>" + (f'<p class="quiet">{OR_LINK}</p>' if has_link else "")
    refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
    return page(401, content, head=refresh)


def address(where: str, why: str = "") -> str:
    """Return the address of the form, from which one goes on to `where`."""
    asked = {"next": where} if where != "/" else {}
    if why:
        asked["why"] = why
    return f"/login?{urlencode(asked)}" if asked else "/login"
