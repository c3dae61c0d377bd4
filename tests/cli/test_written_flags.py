import msgspec
import pytest

from duly.cli.written_flags import as_written, flag_of_field, name_flags
from duly.model.requests.task_request import TaskRequest

SUBMIT = ["submit", "--cap", "5x", "--in=1h", "--", "sh", "--execution-cap", "1s"]


def test_a_flag_is_called_as_it_was_written():
    assert as_written("--execution-cap", SUBMIT) == "--cap"
    assert as_written("--run-at", SUBMIT) == "--in"
    assert as_written("--max-attempts", SUBMIT) == "--max-attempts"
    assert as_written("--output", ["list", "-o", "xml"]) == "-o"


@pytest.mark.parametrize(
    ("arguments", "field", "flag"),
    [
        (SUBMIT, "execution_cap", "--cap"),
        (SUBMIT, "run_at", "--in"),
        (SUBMIT, "depends_on[0]", "--depends-on"),
        (SUBMIT, "resources.memory_mb", "--memory"),
        (SUBMIT, "resources.extra.gpu", "--extra"),
        (SUBMIT, "retry.delay", "--retry-delay"),
        (SUBMIT, "unique.on_conflict", "--on-conflict"),
        (SUBMIT, "command[0]", "COMMAND"),
        (SUBMIT, "ref", None),
        (["schedule", "create", "--daily", "25:00"], "task.execution_cap", "--execution-cap"),
        (["schedule", "create", "--daily", "25:00"], "end_at", "--end"),
        (["tenant", "create", "A B"], "name", "NAME"),
        (["user", "create", "kim", "--password-stdin"], "password", "--password-stdin"),
        ([], "name", None),
    ],
)
def test_a_field_is_called_like_the_flag_of_the_command_that_sets_it(arguments, field, flag):
    assert flag_of_field(field, arguments) == flag


def test_fields_in_a_message_are_called_like_their_flags_but_settings_and_values_are_not():
    message = "it is before start_at ('start_at', the setting retention.history)."
    assert name_flags(message, ["schedule", "create"]) == (
        "it is before --start ('start_at', the setting retention.history)."
    )
    assert name_flags("see retention.history.", ["plan", "create", "p"]) == "see retention.history."


@pytest.mark.parametrize("field", sorted({*TaskRequest.__struct_fields__} - {"ref", "call"}))
def test_every_field_of_a_task_has_a_flag_to_be_called_by(field):
    inner = msgspec.inspect.type_info(TaskRequest)
    kind = next(one.type for one in inner.fields if one.name == field)
    structs = [one for one in getattr(kind, "types", ()) if hasattr(one, "fields")]
    names = [f"{field}.{one.encode_name}" for struct in structs for one in struct.fields] or [field]
    assert [name for name in names if flag_of_field(name, ["submit"]) is None] == []
