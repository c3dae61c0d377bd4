"""What an agent is started with is checked before it asks to join."""

import pytest

from duly.errors import ConfigError
from duly.launch.agent import run_until_interrupted
from duly.launch.local.agent_process import AgentFlags


@pytest.mark.parametrize(
    "content", ["dulyjoin_abc\nextra\n", "# mine dulyjoin_abc", "dulyjoin_\x07"]
)
async def test_a_join_token_file_with_more_than_a_token_is_refused(tmp_path, content):
    file = tmp_path / "join.token"
    file.write_text(content)
    flags = AgentFlags(url="http://127.0.0.1:1", data=str(tmp_path), join_token_file=str(file))
    with pytest.raises(ConfigError, match=r"--join-token-file: .* It must have one line"):
        await run_until_interrupted(flags, lambda: None, lambda _: None)
