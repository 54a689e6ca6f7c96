"""Plays a log to the node: ros2 launch robopos_ros play.launch.py bundle:=FOLDER log:=FILE.mcap

Both run on the log's time. Watch /predictor/prediction/... and /diagnostics; Ctrl-C ends both.
"""

from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    """The node of predict.launch.py on simulated time, and the player that gives it."""
    predict = PathJoinSubstitution([FindPackageShare("robopos_ros"), "launch", "predict.launch.py"])
    return LaunchDescription(
        [
            DeclareLaunchArgument("bundle", description="folder of the model bundle"),
            DeclareLaunchArgument("log", description="MCAP file or rosbag2 folder"),
            DeclareLaunchArgument("rate", default_value="1.0", description="so many times as fast as recorded"),
            DeclareLaunchArgument("loop", default_value="0", description="times to play it; 0 without end"),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(predict),
                launch_arguments={"bundle": LaunchConfiguration("bundle"), "use_sim_time": "true"}.items(),
            ),
            Node(
                package="robopos_ros",
                executable="play",
                output="screen",
                arguments=[
                    LaunchConfiguration("log"),
                    "--clock",
                    "--wait-s",
                    "60",
                    "--rate",
                    LaunchConfiguration("rate"),
                    "--loop",
                    LaunchConfiguration("loop"),
                ],
            ),
        ]
    )
