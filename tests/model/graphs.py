"""Graphs without cycles, to be drawn."""

from hypothesis import strategies as st


@st.composite
def graphs(draw, most=30):
    """Draw a graph without cycles, in any order: an edge goes to a lower label."""
    count = draw(st.integers(1, most))
    labels = draw(st.permutations(range(count)))
    place = {label: index for index, label in enumerate(labels)}
    return [
        sorted({place[one] for one in draw(st.lists(st.integers(0, label - 1), max_size=4))})
        if label
        else []
        for label in labels
    ]
