"""A minimal SVG writer for charts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape

Attributes = str | float


@dataclass(frozen=True)
class Scale:
    """A linear scale from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


@dataclass
class Canvas:
    """A drawing: shapes in the order in which they were added."""

    width: float
    height: float
    _shapes: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, **attributes: Attributes
    ) -> None:
        geometry = {"x": x, "y": y, "width": max(width, 0.0), "height": height, "fill": fill}
        self._add("rect", {**geometry, **attributes})

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str, **attributes: Attributes
    ) -> None:
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": stroke, **attributes})

    def circle(
        self, x: float, y: float, radius: float, fill: str, **attributes: Attributes
    ) -> None:
        self._add("circle", {"cx": x, "cy": y, "r": radius, "fill": fill, **attributes})

    def path(
        self, points: Iterable[tuple[float, float]], stroke: str, **attributes: Attributes
    ) -> None:
        coordinates = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if coordinates:
            self._add(
                "path", {"d": f"M{coordinates}", "stroke": stroke, "fill": "none", **attributes}
            )

    def text(self, x: float, y: float, content: str, **attributes: Attributes) -> None:
        self._add("text", {"x": x, "y": y, **attributes}, escape(content, quote=False))

    def render(self) -> str:
        """Return the SVG document."""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} width="{self.width:g}"'
        font = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#333"'
        background = f'<rect width="{self.width:g}" height="{self.height:g}" fill="#fff"/>'
        return "\n".join([f"{head} {font}>", background, *self._shapes, "</svg>\n"])

    def _add(self, tag: str, attributes: Mapping[str, Attributes], inner: str = "") -> None:
        tooltip = attributes.get("title")
        if tooltip is not None:
            inner += f"<title>{escape(str(tooltip), quote=False)}</title>"
        text_attributes = " ".join(
            f'{name.replace("_", "-")}="{_value(value)}"'
            for name, value in attributes.items()
            if name != "title"
        )
        self._shapes.append(
            f"<{tag} {text_attributes}>{inner}</{tag}>" if inner else f"<{tag} {text_attributes}/>"
        )


def _value(value: Attributes) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))
