"""The select with which an administrator filters the overview by tenant."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from nicegui.element import Element

from duly.dashboard.view import TenantOption


class TenantSelect(Element, component="tenant_select.js"):  # type: ignore[misc,call-arg]
    """A select of tenants; `choose` is called with a name, or with None for all tenants."""

    def __init__(self, choose: Callable[[str | None], Awaitable[None]]) -> None:
        super().__init__()
        self._choose = choose
        self._props["tenants"] = []
        self._props["tenant"] = ""
        self.on("choose", self._on_choose)

    async def _on_choose(self, event: object) -> None:
        name = str(getattr(event, "args", ""))
        # Kept on this side, too: an update of the tenants must not change what is selected.
        self._props["tenant"] = name
        await self._choose(name or None)

    def show(self, tenants: Sequence[TenantOption]) -> None:
        """Replace the tenants that can be chosen."""
        self._props["tenants"] = msgspec.to_builtins(tenants)
        self.update()
