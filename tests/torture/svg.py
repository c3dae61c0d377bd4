"""A minimal SVG writer for charts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape

Attributes = str | float


@dataclass(frozen=True)
class Scale:
    """Turns values into places, linearly."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


@dataclass
class Sheet:
    """Shapes in the order in which they were drawn."""

    width: float
    height: float
    _shapes: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, **more: Attributes
    ) -> None:
        place = {"x": x, "y": y, "width": max(width, 0.0), "height": height, "fill": fill}
        self._add("rect", {**place, **more})

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str, **more: Attributes
    ) -> None:
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": stroke, **more})

    def circle(self, x: float, y: float, radius: float, fill: str, **more: Attributes) -> None:
        self._add("circle", {"cx": x, "cy": y, "r": radius, "fill": fill, **more})

    def path(self, points: Iterable[tuple[float, float]], stroke: str, **more: Attributes) -> None:
        places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if places:
            self._add("path", {"d": f"M{places}", "stroke": stroke, "fill": "none", **more})

    def text(self, x: float, y: float, words: str, **more: Attributes) -> None:
        self._add("text", {"x": x, "y": y, **more}, escape(words, quote=False))

    def render(self) -> str:
        """Return the whole as a file."""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} width="{self.width:g}"'
        font = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#333"'
        ground = f'<rect width="{self.width:g}" height="{self.height:g}" fill="#fff"/>'
        return "\n".join([f"{head} {font}>", ground, *self._shapes, "</svg>\n"])

    def _add(self, tag: str, attributes: Mapping[str, Attributes], inner: str = "") -> None:
        tip = attributes.get("title")
        if tip is not None:
            inner += f"<title>{escape(str(tip), quote=False)}</title>"
        written = " ".join(
            f'{name.replace("_", "-")}="{_value(value)}"'
            for name, value in attributes.items()
            if name != "title"
        )
        self._shapes.append(f"<{tag} {written}>{inner}</{tag}>" if inner else f"<{tag} {written}/>")


def _value(value: Attributes) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))
