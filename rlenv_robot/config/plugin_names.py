"""List what each plug-in of this distribution brings by name, for messages where one is not installed."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["PLUGINS", "VERB_GROUPS", "missing_plugins", "plugin_of"]

VERB_GROUPS = ("rlenv_robot.verbs", "rlenv_robot.data_verbs")
"""The entry-point groups of verbs."""

PLUGINS: dict[str, dict[str, tuple[str, ...]]] = {
    "rlenv_arms": {
        "rlenv_robot.verbs": ("robot calibrate", "robot ports", "robot twin"),
        "rlenv_robot.robots": ("gimbal", "koch"),
    },
    "rlenv_bridges": {"rlenv_robot.verbs": ("dev tables",)},
    "rlenv_curate": {
        "rlenv_robot.data_verbs": (
            "data check", "data cut", "data label", "data lineage", "data merge", "data plot", "data recover",
            "data timeline", "data verify",
        ),
        "rlenv_robot.statistics": (
            "advantage", "coverage", "fitted_q", "histogram", "model_error", "model_return", "off_policy"),
    },
    "rlenv_data_browser": {"rlenv_robot.data_verbs": ("data browse",)},
    "rlenv_episode_index": {"rlenv_robot.data_verbs": ("data select",)},
    "rlenv_formats": {"rlenv_robot.data_verbs": ("data fields", "data push", "data units")},
    "rlenv_gpu": {"rlenv_robot.batch_engines": ("warp",)},
    "rlenv_kaiwu": {"rlenv_robot.verbs": ("kaiwu",)},
    "rlenv_kit": {"rlenv_robot.verbs": ("check", "protocol", "robot bench", "robot certify", "dev new")},
    "rlenv_language": {"rlenv_robot.tasks": ("frozen-lake", "sokoban")},
    "rlenv_learn": {
        "rlenv_robot.verbs": ("imitate",),
        "rlenv_robot.trainers": ("ppo",),
        "rlenv_robot.offline_trainers": ("awac", "bc", "cql", "iql", "td3bc"),
    },
    "rlenv_lerobot": {},
    "rlenv_operate": {
        "rlenv_robot.verbs": (
            "doctor", "robot keys", "robot watch",
            "operate teleop", "operate latency", "operate view", "operate console", "operate tokens",
        ),
    },
    "rlenv_policy_servers": {"rlenv_robot.verbs": ("policy serve",)},
    "rlenv_ros2": {
        "rlenv_robot.verbs": ("robot topics",),
        "rlenv_robot.drivers": ("ros2",),
        "rlenv_robot.node_transports": ("dds", "zenoh"),
    },
    "rlenv_ros2node": {"rlenv_robot.verbs": ("robot ros2",)},
    "rlenv_power_cut": {
        "rlenv_robot.verbs": ("robot power-cut",),
        "rlenv_robot.server_extensions": ("power-cut",),
    },
    "rlenv_sim2real": {
        "rlenv_robot.verbs": (
            "sim2real manifest", "sim2real excite", "sim2real gap", "sim2real regress", "sim2real identify",
            "sim2real population", "sim2real offsets", "sim2real validity", "sim2real contact",
        ),
    },
    "rlenv_tabletop": {
        "rlenv_robot.tasks": (
            "so101-errand", "so101-errand-skills", "so101-drawer", "so101-insert", "so101-lid", "so101-pair-lift",
            "so101-pick-place-skills", "so101-push-skills", "so101-sort", "so101-stack",
        ),
        "rlenv_robot.robots": (
            "so101-box", "so101-cabinet", "so101-pair", "so101-peg", "so101-table-1", "so101-table-2",
            "so101-table-3", "so101-table-4",
        ),
        "rlenv_robot.scripts": (
            "so101-drawer", "so101-insert", "so101-lid", "so101-pair-lift", "so101-pick-place", "so101-push",
            "so101-sort", "so101-stack",
        ),
    },
    "rlenv_unitree": {
        "rlenv_robot.verbs": ("robot virtual-go2",),
        "rlenv_robot.drivers": ("unitree-g1", "unitree-go2"),
        "rlenv_robot.robots": ("g1",),
    },
    "rlenv_vision": {"rlenv_robot.verbs": ("robot camera",)},
    "rlenv_zoo": {
        "rlenv_robot.verbs": ("policy card", "policy zoo"),
        "rlenv_robot.zoo": ("so101-pick-place", "so101-push", "so101-reach", "so101-reach-drawn"),
    },
}  # fmt: skip
"""Package of a plug-in -> entry-point group -> names that it declares; of verbs with the group's word before them."""


def plugin_of(group: str, name: object) -> str | None:
    """Return the package of the plug-in that declares a name in an entry-point group; None if none does."""
    return next((package for package, groups in PLUGINS.items() if name in groups.get(group, ())), None)


def missing_plugins() -> list[str]:
    """Return the packages of the plug-ins that are not installed, in alphabetical order."""
    return [package for package in PLUGINS if find_spec(package) is None]
