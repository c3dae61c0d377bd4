"""A bound on how much of something there may be at once."""


class Room:
    """Counts what is inside; whoever does not fit has to come again later."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def fits(self, amount: int = 1) -> bool:
        """Say whether that much more may come in."""
        return self.used + amount <= self.most

    def take(self, amount: int = 1) -> None:
        """Let it in; the caller has made sure that it fits."""
        self.used += amount

    def give_back(self, amount: int = 1) -> None:
        """Let it out."""
        self.used -= amount
