"""The variables of the shipped packs are known to every command, which refuses those that are nobody's."""

from __future__ import annotations

import importlib
import pkgutil

import toolfleet.workers.packs
from toolfleet.variables import OF_PACKS
from toolfleet.workers.packs.pack_settings import PackSettings


def test_every_setting_of_a_shipped_pack_is_a_known_variable_and_no_other() -> None:
    for module in pkgutil.iter_modules(toolfleet.workers.packs.__path__):
        importlib.import_module(f"toolfleet.workers.packs.{module.name}")
    packs = [each for each in PackSettings.__subclasses__() if each.__module__.startswith("toolfleet.workers.packs.")]
    variables = {f"{each.model_config['env_prefix']}{name}".upper() for each in packs for name in each.model_fields}
    assert variables == {f"TOOLFLEET_{name}" for name in OF_PACKS}
