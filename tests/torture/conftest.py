"""The fixtures of the fault tests, for the fault lab."""

from tests.faults.conftest import folder as folder
