"""Scripts of tools/, which are no package, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).parents[2] / "tools"


def load_tool(name: str) -> ModuleType:
    """Load tools/`name`.py."""
    where = importlib.util.spec_from_file_location(f"tools.{name}", TOOLS / f"{name}.py")
    assert where is not None
    assert where.loader is not None
    module = importlib.util.module_from_spec(where)
    sys.modules[where.name] = module  # for its dataclasses
    where.loader.exec_module(module)
    return module
