"""Loads the application that a worker runs: MODULE:APP."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from duly.client.functions.app import App
from duly.errors import ConfigError


def load_app(path: str) -> App:
    """Return the app at "package.module:app", imported from the current folder or the path.

    Raises ConfigError if there is none, or if the module fails on import.
    """
    module_name, colon, attribute = path.partition(":")
    if not module_name or not colon or not attribute:
        raise ConfigError(f"{path!r} names no app. Write it like shop.tasks:app.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import(module_name)
    app = getattr(module, attribute, None)
    if isinstance(app, App):
        return app
    raise ConfigError(_what_is_there(module, attribute, found=hasattr(module, attribute)))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"There is no module {error.name!r} in {Path.cwd()} or on the Python path. Start "
                "the worker in the folder that contains it."
            ) from None
        raise _import_failed(name, error) from error
    except Exception as error:
        raise _import_failed(name, error) from error


def _import_failed(name: str, error: Exception) -> ConfigError:
    text = "".join(traceback.format_exception(error)).rstrip()
    return ConfigError(f"The module {name!r} cannot be imported:\n{text}")


def _what_is_there(module: ModuleType, attribute: str, *, found: bool) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    problem = "is no duly.App" if found else "does not exist"
    hint = f" The module has {', '.join(sorted(apps))}." if apps else ""
    return f"{module.__name__}:{attribute} {problem}.{hint}"
