"""Output of commands: tables and details for people, four formats for programs.

Responses of the client come in, and text goes to standard output. Text from tenants is made safe
for terminals first (`text.py`). Start with `printing.py`; `tables.py` is imported only when a
table is printed, because rich is slow to import.
"""
