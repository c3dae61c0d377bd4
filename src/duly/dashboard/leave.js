// A page that has lost its connection looks whether it was only that, or whether the session is
// over: after a restart of the pages nobody would tell it, because it is not let in any more.
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  const answer = await fetch("/", { method: "HEAD" }).catch(() => null);
  if (answer?.status !== 401) return;
  const next = encodeURIComponent(location.pathname + location.search);
  location.href = `/login?why=ended&next=${next}`;
}, 3000);
