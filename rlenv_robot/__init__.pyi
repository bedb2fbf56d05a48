"""The public names, once: type checkers read this file, and `__init__.py` finds each name's module in it."""

from hal import (
    CommandTooOld as CommandTooOld,
)
from hal import (
    ConnectionLost as ConnectionLost,
)
from hal import (
    DeadlineExceeded as DeadlineExceeded,
)
from hal import (
    EpisodeError as EpisodeError,
)
from hal import (
    Field as Field,
)
from hal import (
    Guard as Guard,
)
from hal import (
    IllegalAction as IllegalAction,
)
from hal import (
    LogError as LogError,
)
from hal import (
    ProfileError as ProfileError,
)
from hal import (
    ResetFailed as ResetFailed,
)
from hal import (
    Robot as Robot,
)
from hal import (
    RobotError as RobotError,
)
from hal import (
    RobotSpec as RobotSpec,
)
from hal import (
    RobotState as RobotState,
)
from hal import (
    RobotStopped as RobotStopped,
)
from hal import (
    SampleSink as SampleSink,
)
from hal import (
    SourceError as SourceError,
)
from hal import (
    Spec as Spec,
)
from hal import (
    SpecError as SpecError,
)
from hal import (
    SpecMismatch as SpecMismatch,
)
from hal import (
    StaleReading as StaleReading,
)
from hal import (
    Streaming as Streaming,
)
from hal import (
    StreamSpec as StreamSpec,
)
from hal import (
    Violation as Violation,
)
from hal import (
    WireError as WireError,
)
from real import (
    RemoteRobot as RemoteRobot,
)
from real import (
    Server as Server,
)
from recorder.formats.registry import (
    Format as Format,
)
from recorder.formats.registry import (
    register_format as register_format,
)
from rlenv_bridges.from_gymnasium import (
    from_gymnasium as from_gymnasium,
)
from rlenv_bridges.from_pettingzoo import (
    from_pettingzoo as from_pettingzoo,
)
from rlenv_bridges.pettingzoo import (
    to_pettingzoo as to_pettingzoo,
)
from rlenv_bridges.pettingzoo import (
    to_pettingzoo_aec as to_pettingzoo_aec,
)
from rlenv_bridges.stable_baselines3 import (
    to_stable_baselines3 as to_stable_baselines3,
)
from rlenv_bridges.tianshou import (
    to_replay_buffer as to_replay_buffer,
)
from rlenv_bridges.tianshou import (
    to_tianshou as to_tianshou,
)
from rlenv_bridges.tianshou_agents import (
    to_tianshou_agents as to_tianshou_agents,
)
from rlenv_kit import (
    check_environment as check_environment,
)
from rlenv_kit import (
    check_robot as check_robot,
)
from rlenv_kit import (
    check_source as check_source,
)
from rlenv_kit import (
    check_vector as check_vector,
)
from rlenv_robot.adapters.flat import (
    FlattenObservation as FlattenObservation,
)
from rlenv_robot.adapters.flat import (
    flat_for as flat_for,
)
from rlenv_robot.adapters.gymnasium import (
    to_gymnasium as to_gymnasium,
)
from rlenv_robot.adapters.gymnasium import (
    to_gymnasium_vector as to_gymnasium_vector,
)
from rlenv_robot.config.profile import (
    Profile as Profile,
)
from rlenv_robot.config.profile import (
    load_profile as load_profile,
)
from rlenv_robot.data.sampling import (
    PreferencePair as PreferencePair,
)
from rlenv_robot.env import (
    Environment as Environment,
)
from rlenv_robot.policies.flat import (
    FlatPolicy as FlatPolicy,
)
from rlenv_robot.policies.policy import (
    load_policy as load_policy,
)
from rlenv_robot.registry import (
    environment_names as environment_names,
)
from rlenv_robot.registry import (
    make as make,
)
from rlenv_robot.registry import (
    make_vector as make_vector,
)
from rlenv_robot.registry import (
    register_task as register_task,
)
from rlenv_robot.registry import (
    robot as robot,
)
from rlenv_robot.registry import (
    task as task,
)
from rlenv_robot.rendering.viewer import (
    view as view,
)
from rlenv_robot.robot_env.core import (
    RobotWorld as RobotWorld,
)
from rlenv_robot.robot_env.turn_based import (
    one_at_a_time as one_at_a_time,
)
from rlenv_robot.robot_models import (
    RobotModel as RobotModel,
)
from rlenv_robot.robot_models import (
    register_robot as register_robot,
)
from rlenv_robot.robot_models import (
    robot_names as robot_names,
)
from rlenv_robot.serving import (
    serve as serve,
)
from rlenv_robot.source import (
    SourceData as SourceData,
)
from rlenv_robot.source import (
    open_source as open_source,
)
from rlenv_robot.tasks.agents import (
    Agent as Agent,
)
from rlenv_robot.tasks.task import (
    Episode as Episode,
)
from rlenv_robot.tasks.task import (
    Task as Task,
)
from rlenv_robot.training.rollout import (
    LearningCurve as LearningCurve,
)
from rlenv_robot.vector.env import (
    VectorEnvironment as VectorEnvironment,
)
from rlenv_robot.vector.env import (
    VectorSnapshot as VectorSnapshot,
)
from rlenv_robot.world import (
    EnvDescription as EnvDescription,
)
from rlenv_robot.world import (
    TimeStep as TimeStep,
)
from rlenv_robot.world import (
    World as World,
)

__version__: str
