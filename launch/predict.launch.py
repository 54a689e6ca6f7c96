"""Runs the node `predictor` on a bundle: ros2 launch robopos_ros predict.launch.py bundle:=FOLDER"""

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    """One lifecycle node; with autostart it configures and activates itself."""
    params_file = PathJoinSubstitution([FindPackageShare("robopos_ros"), "config", "predictor.yaml"])
    return LaunchDescription(
        [
            DeclareLaunchArgument("bundle", description="folder of the model bundle"),
            DeclareLaunchArgument("device", default_value="auto", description="torch device: auto, cpu, cuda"),
            DeclareLaunchArgument(
                "autostart",
                default_value="true",
                description="configure and activate at start; false waits for a lifecycle manager",
            ),
            DeclareLaunchArgument(
                "params_file", default_value=params_file, description="YAML file with the other parameters"
            ),
            DeclareLaunchArgument(
                "use_sim_time", default_value="false", description="take the time from /clock, as for a played log"
            ),
            DeclareLaunchArgument("namespace", default_value="", description="namespace of node and topics"),
            DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error"),
            LifecycleNode(
                package="robopos_ros",
                executable="predictor",
                name="predictor",
                namespace=LaunchConfiguration("namespace"),
                output="screen",
                parameters=[
                    LaunchConfiguration("params_file"),
                    {
                        "bundle": ParameterValue(LaunchConfiguration("bundle"), value_type=str),
                        "device": ParameterValue(LaunchConfiguration("device"), value_type=str),
                        "use_sim_time": ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool),
                        "autostart": ParameterValue(LaunchConfiguration("autostart"), value_type=bool),
                    },
                ],
                ros_arguments=["--log-level", LaunchConfiguration("log_level")],
            ),
        ]
    )
