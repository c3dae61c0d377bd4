"""PostgreSQL's programs run outside our terminal."""

import os

from duly.store.embedded.programs import Programs
from duly.store.embedded.system_user import current_user


def test_ctrl_c_at_our_terminal_does_not_reach_a_program(tmp_path):
    program = tmp_path / "initdb"
    program.write_text("#!/bin/sh\ncut -d' ' -f6 /proc/$$/stat\n")
    program.chmod(0o755)
    session = int(Programs(tmp_path).run("initdb", [], current_user()).stdout)
    assert session != os.getsid(0)
