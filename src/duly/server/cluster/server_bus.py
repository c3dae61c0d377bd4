"""Tells the other servers what happens here, and passes on what happens there.

It is only quicker than looking: a task that is submitted to a server that does not
lead is placed at once and not within a second. So nothing waits for the herald,
nothing is repeated, and when its line is cut everything goes on without it.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from duly.server import news
from duly.server.news import EVERYTHING, News
from duly.server.service import Service
from duly.store.channel import Channel
from duly.store.database import Database

CHECK = timedelta(seconds=2)
"""How often the line is tried, and looked whether anybody else is there."""
SILENCE = timedelta(seconds=10)
"""How long a server that says nothing counts as being there."""
PAUSE = timedelta(milliseconds=5)
"""The least time between two messages; what happens meanwhile goes into one."""
NOTHING = News()


class Herald(Service):
    """Keeps the line open and sends what has been gathered."""

    def __init__(self, database: Database) -> None:
        super().__init__(CHECK)
        self._database = database
        self._channel: Channel | None = None
        self._has_company = False
        self._gathered = NOTHING
        self._listeners: list[Callable[[News], None]] = []

    def subscribe(self, listener: Callable[[News], None]) -> None:
        """Let `listener` hear what other servers tell."""
        self._listeners.append(listener)

    def tell(self, gathered: News) -> None:
        """Let the other servers know, soon; call it after the commit."""
        if self._has_company and gathered != NOTHING:
            self._gathered |= gathered
            self.nudge()

    def announce(self, gathered: News) -> None:
        """Let every server know, this one included; call it after the commit."""
        self._pass_on(gathered)
        self.tell(gathered)

    async def run(self) -> None:
        """Tick until cancelled, and hang up."""
        try:
            await super().run()
        finally:
            self._close()

    async def tick(self) -> bool:
        """Open the line if it is cut; send what has been gathered since the last message."""
        try:
            await self._speak(await self._keep_open())
        except BaseException:
            self._close()
            raise
        return False

    async def _speak(self, channel: Channel) -> None:
        if self._gathered == NOTHING:
            self._has_company = await channel.has_company(SILENCE)
            return
        gathered, self._gathered = self._gathered, NOTHING
        await channel.tell(news.write(gathered))
        await asyncio.sleep(PAUSE.total_seconds())

    async def _keep_open(self) -> Channel:
        if self._channel is None or not self._channel.is_open:
            self._channel = await Channel.open(self._database, self._hear, self.nudge)
            self._pass_on(EVERYTHING)
        return self._channel

    def _hear(self, text: str) -> None:
        self._pass_on(news.read(text))

    def _pass_on(self, told: News) -> None:
        for listener in self._listeners:
            listener(told)

    def _close(self) -> None:
        """Hang up; what has been gathered is dropped, for everyone looks by themselves."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._has_company = False
        self._gathered = NOTHING
