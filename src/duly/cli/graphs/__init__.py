"""Commands for graphs, and drawings of them: tree, SVG, DOT and Mermaid.

A graph comes in as the client returns it; each drawing is a pure function from it to text. Start
with `graph.py`, the command; `graph_operations.py` cancels, pauses and resumes whole graphs.
"""
