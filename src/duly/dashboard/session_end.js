// A page that has lost its websocket checks whether its session has ended, and then opens the login
// form. After a restart of the dashboard nothing else would: the websocket is refused without a session.
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  const response = await fetch("/", { method: "HEAD" }).catch(() => null);
  if (response?.status !== 401) return;
  const next = encodeURIComponent(location.pathname + location.search);
  location.href = `/login?why=ended&next=${next}`;
}, 3000);
