"""A Hypothesis strategy for acyclic graphs."""

from hypothesis import strategies as st


@st.composite
def graphs(draw, max_tasks=30):
    """Draw an acyclic graph whose tasks are in any order: edges point to lower labels."""
    count = draw(st.integers(1, max_tasks))
    labels = draw(st.permutations(range(count)))
    index_of = {label: index for index, label in enumerate(labels)}
    return [
        sorted({index_of[lower] for lower in draw(st.lists(st.integers(0, label - 1), max_size=4))})
        if label
        else []
        for label in labels
    ]
