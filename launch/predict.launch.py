"""Runs the node `predictor` on a bundle: ros2 launch robopos_ros predict.launch.py bundle:=FOLDER"""

from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from launch import LaunchContext, LaunchDescription

# Parameters that may stand in the file too: an argument counts for more, but only when it is given.
GIVEN = {"device": str, "autostart": bool, "use_sim_time": bool}


def _node(context: LaunchContext) -> list[LifecycleNode]:
    given = {
        name: ParameterValue(LaunchConfiguration(name), value_type=kind)
        for name, kind in GIVEN.items()
        if LaunchConfiguration(name).perform(context)
    }
    return [
        LifecycleNode(
            package="robopos_ros",
            executable="predictor",
            name="predictor",
            namespace=LaunchConfiguration("namespace"),
            output="screen",
            parameters=[
                LaunchConfiguration("params_file"),
                {"bundle": ParameterValue(LaunchConfiguration("bundle"), value_type=str)} | given,
            ],
            ros_arguments=["--log-level", LaunchConfiguration("log_level")],
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """One lifecycle node; with autostart it configures and activates itself."""
    params_file = PathJoinSubstitution([FindPackageShare("robopos_ros"), "config", "predictor.yaml"])
    return LaunchDescription(
        [
            DeclareLaunchArgument("bundle", description="folder of the model bundle"),
            DeclareLaunchArgument(
                "params_file", default_value=params_file, description="YAML file with the other parameters"
            ),
            DeclareLaunchArgument(
                "device", default_value="", description="torch device: auto, cpu, cuda (default: the file's)"
            ),
            DeclareLaunchArgument(
                "autostart",
                default_value="",
                description="configure and activate at start; false waits for a manager (default: the file's)",
            ),
            DeclareLaunchArgument(
                "use_sim_time",
                default_value="",
                description="take the time from /clock, as for a played log (default: the file's, else false)",
            ),
            DeclareLaunchArgument("namespace", default_value="", description="namespace of node and topics"),
            DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error"),
            OpaqueFunction(function=_node),
        ]
    )
