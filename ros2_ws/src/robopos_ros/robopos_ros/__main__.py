"""`python -m robopos_ros --ros-args -p bundle:=FOLDER` runs the node `predictor`."""

from __future__ import annotations

import sys

from robopos_ros.signals import stop_on_signals


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM; 0 then, 1 when its arguments make no sense."""
    stop = stop_on_signals()  # before the slow imports: a signal that comes early is not lost
    try:
        import rclpy
        from rclpy.exceptions import ParameterException
        from rclpy.lifecycle import TransitionCallbackReturn
        from rclpy.signals import SignalHandlerOptions
    except ImportError as error:
        print(
            f"robopos_ros: ROS 2 for Python is missing ({error}): "
            "install robopos[ros], or source the set-up of a ROS 2 installation",
            file=sys.stderr,
        )
        return 1
    from robopos.errors import ServingError
    from robopos_ros.node import Predictor
    from robopos_ros.process import check_domain
    from robopos_ros.spin import spin

    try:
        check_domain()
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
        node = Predictor()
    except ServingError as error:
        print(f"robopos_ros: {error}", file=sys.stderr)
        return 1
    except (ParameterException, RuntimeError) as error:  # RuntimeError: rcl could not read its arguments
        print(f"robopos_ros: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        rclpy.try_shutdown()
        return 1
    try:
        if (
            not stop.is_set()
            and node.settings.autostart
            and node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        ):
            node.trigger_activate()
        spin(node, stop)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
