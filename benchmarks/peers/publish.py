"""Writes the results into the documentation: `python -m benchmarks.peers.publish`.

The results are those that `make bench-peers` left in build/. The generated parts of the page come
from them and from the descriptions of the systems alone; a test compares.
"""

from benchmarks.peers import table
from benchmarks.peers.catalog import ALL
from benchmarks.peers.figures import Row, merge
from benchmarks.peers.report import BUILD, ROOT, Report, replace_section

PAGE = ROOT / "docs" / "explanation" / "peers.md"
DATA = ROOT / "docs" / "explanation" / "peers.json"


def rendered(page: str, report: Report) -> str:
    """Return the page with its generated parts replaced."""
    about = [system.about for system in ALL]
    parts = {
        "peers.json": report.markdown().strip(),
        "the functions": report.functions().strip(),
        "the brokers": table.durability_table().strip(),
        "the facts": table.facts_table(about).strip(),
        "the settings": table.settings_list(about).strip(),
    }
    for name, text in parts.items():
        page = replace_section(page, name, text)
    return page


def complete(report: Report) -> Report:
    """Return the report with a row for every system and broker, measured or not."""
    missing = [
        Row(system.about.name, broker, "", "", left_out="not measured this time")
        for system in ALL
        for broker in system.about.brokers
    ]
    return Report(report.machine, merge(missing, report.rows))


if __name__ == "__main__":
    if (BUILD / "peers.json").exists():
        complete(Report.read(BUILD / "peers.json")).write(DATA)
    PAGE.write_text(rendered(PAGE.read_text(), Report.read(DATA)))
