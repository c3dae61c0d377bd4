"""How numbers are written for people; imports nothing large, because the command line needs it."""

from decimal import Decimal


def format_number(number: float | Decimal) -> str:
    """Write a number as a person does: all of its digits, and no exponent."""
    return f"{Decimal(str(number)).normalize():f}"
